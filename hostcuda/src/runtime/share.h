// Sharing one operation between the workers of a device: it is cut into slices whose bounds depend on its
// size and the number of workers alone; whoever is free takes the next one.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <functional>

namespace hostcuda {

struct Device;

struct SharedJob {
  const std::function<cudaError_t(int)>& slice;
  const int slices;
  std::atomic<int> next{0};
  std::atomic<int> helpers{0};
  std::atomic<cudaError_t> error{cudaSuccess};  // the first one
};

// For a worker with nothing else to do: runs slices of a job that it has counted itself into (`helpers`).
void help(SharedJob& job);

// Runs slice(0) .. slice(slices - 1), on this thread and on idle workers of the device; returns when all are
// done.
cudaError_t share(Device& device, int slices, const std::function<cudaError_t(int)>& slice);

// f(0) .. f(count - 1), shared likewise.
cudaError_t share_each(Device& device, int64_t count, const std::function<void(int)>& f);

// A library call, as enqueue_call's, whose work is shared: it gets the device that runs it.
cudaError_t enqueue_shared_call(const char* name, std::function<cudaError_t(Device&)> call,
                                cudaStream_t stream);

}  // namespace hostcuda
