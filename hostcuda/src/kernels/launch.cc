// How kernels and library calls get into a stream: checked against CUDA's limits, then enqueued.
#include <hostcuda/launch.h>
#include <hostcuda/statistics.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "hostcuda/src/kernels/execution.h"
#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/capture.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/counts.h"
#include "hostcuda/src/runtime/share.h"
#include "hostcuda/src/runtime/tally.h"

namespace hostcuda {
namespace {

// An element kernel is shared where every worker gets at least this many elements; slices end on whole cache
// lines, so that no two workers write to one.
constexpr int64_t kLeastElements = 8192;
constexpr int64_t kCacheLine = 64;

class KernelWork : public Work {
 public:
  explicit KernelWork(KernelLaunch launch) : launch_(std::move(launch)) {
    if (!is_tallied()) return;
    operation_ = std::make_unique<Operation>();
    operation_->kind = Operation::Kind::kernel;
    operation_->device = this_thread().device;
    operation_->kernel = launch_.kernel;
    if (launch_.name != nullptr) operation_->name = launch_.name;
    operation_->site = launch_.site;
    const dim3 &grid = launch_.grid, &block = launch_.block;
    operation_->grid[0] = grid.x, operation_->grid[1] = grid.y, operation_->grid[2] = grid.z;
    operation_->block[0] = block.x, operation_->block[1] = block.y, operation_->block[2] = block.z;
    operation_->shared_bytes = launch_.shared_bytes;
    operation_->operations = take_noted_operations();
  }
  const char* name() const override { return launch_.site.function; }
  const Operation* operation() const override { return operation_.get(); }
  cudaError_t run(Device& device) override {
    const uint64_t blocks = uint64_t{launch_.grid.x} * launch_.grid.y * launch_.grid.z;
    if (launch_.cooperative) return run_cooperative(launch_, blocks);
    const uint64_t slices = std::min<uint64_t>(config().threads == 1 ? 1 : 4 * config().threads, blocks);
    if (slices == 1) return run_blocks(launch_, 0, blocks);
    return share(device, static_cast<int>(slices), [&](int slice) {
      const uint64_t s = static_cast<uint64_t>(slice);
      return run_blocks(launch_, blocks * s / slices, blocks * (s + 1) / slices);
    });
  }

 private:
  const KernelLaunch launch_;
  std::unique_ptr<Operation> operation_;  // for forecasts
};

class ElementsWork : public Work {
 public:
  ElementsWork(int64_t n, std::function<void(int64_t, int64_t)> slice, LaunchSite site)
      : n_(n), slice_(std::move(slice)), site_(site) {}
  const char* name() const override { return site_.function; }
  cudaError_t run(Device& device) override {
    const int64_t slices =
        std::min<int64_t>(config().threads == 1 ? 1 : 4 * config().threads, n_ / kLeastElements);
    if (slices <= 1) {
      slice_(0, n_);
      return cudaSuccess;
    }
    const int64_t size = (n_ / slices + kCacheLine) / kCacheLine * kCacheLine;
    return share(device, static_cast<int>(slices), [&](int slice) {
      const int64_t begin = std::min(slice * size, n_), end = std::min(begin + size, n_);
      if (begin < end) slice_(begin, end);
      return cudaSuccess;
    });
  }

 private:
  const int64_t n_;
  const std::function<void(int64_t, int64_t)> slice_;
  const LaunchSite site_;
};

class CallWork : public Work {
 public:
  CallWork(const char* name, std::function<cudaError_t(Device&)> call) : name_(name), call_(std::move(call)) {
    if (is_tallied()) operation_ = std::make_unique<Operation>(take_described_call(name));
  }
  const char* name() const override { return name_; }
  const Operation* operation() const override { return operation_.get(); }
  cudaError_t run(Device& device) override { return call_(device); }

 private:
  const char* const name_;
  const std::function<cudaError_t(Device&)> call_;
  std::unique_ptr<Operation> operation_;  // for forecasts
};

cudaError_t check_limits(const KernelLaunch& launch) {
  const dim3 &grid = launch.grid, &block = launch.block;
  const bool grid_fits = grid.x >= 1 && grid.x <= 2147483647u && grid.y >= 1 && grid.y <= 65535 &&
                         grid.z >= 1 && grid.z <= 65535;
  const bool block_fits = block.x >= 1 && block.x <= 1024 && block.y >= 1 && block.y <= 1024 &&
                          block.z >= 1 && block.z <= 64 && uint64_t{block.x} * block.y * block.z <= 1024;
  if (!grid_fits || !block_fits) return cudaErrorInvalidConfiguration;
  return launch.shared_bytes > launch.shared_limit ? cudaErrorInvalidValue : cudaSuccess;
}

// Kernels run on the current device: a stream of another one will not do.
template <typename Make>
cudaError_t enqueue_on_current(cudaStream_t stream, Make make) {
  CUstream_st* const found = find_stream(stream);
  if (found == nullptr || found->device != this_thread().device) return cudaErrorInvalidResourceHandle;
  return submit(*found, make());
}

}  // namespace

Launches launches() {
  return {counts.kernels, counts.library_calls, counts.copies, counts.events};
}

cudaError_t enqueue_kernel(KernelLaunch launch, cudaStream_t stream) {
  return device_call([&] {
    const cudaError_t error = check_limits(launch);
    if (error != cudaSuccess) return error;
    ++counts.kernels;
    return enqueue_on_current(stream, [&] { return std::make_unique<KernelWork>(std::move(launch)); });
  });
}

cudaError_t enqueue_elements(int64_t n, std::function<void(int64_t, int64_t)> slice, LaunchSite site,
                             cudaStream_t stream) {
  return device_call([&] {
    if (n < 0) return cudaErrorInvalidConfiguration;
    ++counts.kernels;
    return enqueue_on_current(stream,
                              [&] { return std::make_unique<ElementsWork>(n, std::move(slice), site); });
  });
}

cudaError_t enqueue_call(const char* name, std::function<void()> call, cudaStream_t stream) {
  return enqueue_shared_call(
      name,
      [call = std::move(call)](Device&) {
        call();
        return cudaSuccess;
      },
      stream);
}

cudaError_t enqueue_shared_call(const char* name, std::function<cudaError_t(Device&)> call,
                                cudaStream_t stream) {
  return device_call([&] {
    ++counts.library_calls;
    return enqueue_on_current(stream, [&] { return std::make_unique<CallWork>(name, std::move(call)); });
  });
}

}  // namespace hostcuda
