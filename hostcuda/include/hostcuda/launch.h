// How kernels and library calls reach a stream of hostcuda. CUDA has `<<<>>>` for this; C++ has not, so
// kernels/launch.cuh, cuBLAS and cuDNN use these functions. Everything else of hostcuda is the CUDA API.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>

namespace hostcuda {

// Where a kernel was launched from, for errors: the launcher's file, line and function.
struct LaunchSite {
  const char* file;
  int line;
  const char* function;
};

// A launch of a CUDA kernel. `thread` runs the kernel's body once, for the CUDA thread that the built-in
// variables (threadIdx, blockIdx) name at that moment; the executor calls it grid x block times.
struct KernelLaunch {
  const void* kernel;  // the kernel's address, from which its name is found
  LaunchSite site;
  dim3 grid;
  dim3 block;
  size_t shared_bytes;  // dynamic shared memory a block
  std::function<void()> thread;
  const char* name = nullptr;      // of the kernel, where its address does not tell
  size_t shared_limit = 48 << 10;  // bytes of dynamic shared memory that it may ask for
  bool cooperative = false;        // its blocks run at the same time and may wait for each other
};

// Checks CUDA's limits (1024 threads per block, 48 KB shared, grid and block not empty), then enqueues on
// `stream`, or records a node where the stream is being captured. Returns at once.
cudaError_t enqueue_kernel(KernelLaunch launch, cudaStream_t stream);

// An element kernel in fast mode: `slice(begin, end)` handles elements [begin, end); the workers of the
// device share [0, n) between them in contiguous slices. Each element must be independent of the others.
cudaError_t enqueue_elements(int64_t n, std::function<void(int64_t begin, int64_t end)> slice,
                             LaunchSite site, cudaStream_t stream);

// A library call (cuBLAS, cuDNN): runs once on a worker of the stream's device, in stream order, and may use
// up to `threads_per_device()` threads itself.
cudaError_t enqueue_call(const char* name, std::function<void()> call, cudaStream_t stream);

// HOSTCUDA_CHECK=1: kernels run as fibers at their GPU block size, memory is watched (see
// hostcuda/README.md).
bool checked_mode();

// Whether kernels are to run at their GPU block size: in checked mode, and where they are profiled.
bool at_gpu_block_sizes();

// HOSTCUDA_THREADS, or the machine's cores divided by the number of devices, at least 1.
int threads_per_device();

// The dynamic shared memory of the block that this thread runs (`extern __shared__` in CUDA).
void* dynamic_shared_memory();

}  // namespace hostcuda
