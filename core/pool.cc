#include "core/pool.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string_view>

#include "core/device.h"
#include "kernels/check.h"

namespace lockstep {
namespace {

// Sizes are rounded so that blocks fit again: to 512 bytes, and above 4 KiB to an eighth of the power of two
// below, which wastes 12.5 % at most.
size_t rounded(size_t bytes) {
  const size_t step = std::max<size_t>(512, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

bool asked_to_cache() {
  const char* value = std::getenv("LOCKSTEP_POOL");
  const std::string_view asked = value == nullptr ? "1" : value;
  if (asked != "0" && asked != "1")
    throw Error(fmt::format("LOCKSTEP_POOL is '{}': use 1 (memory is kept for the next tensor) or 0", asked));
  return asked == "1";
}

// cudaMalloc must not disturb a capture that is going on in this thread.
class RelaxedCapture {
 public:
  RelaxedCapture() { LOCKSTEP_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

MemoryPool::MemoryPool(int physical, std::string name, cudaStream_t stream)
    : physical_(physical), name_(std::move(name)), stream_(stream), caches_(asked_to_cache()) {}

MemoryPool::~MemoryPool() {
  for (const auto& [block, size] : size_of_) (void)cudaFree(block);
}

void* MemoryPool::take_cached(size_t size) {
  if (!caches_) return nullptr;
  for (auto* blocks : {&captured_, &cached_}) {
    const auto found = blocks->find(size);
    if (found == blocks->end() || found->second.empty()) continue;
    void* block = found->second.back();
    found->second.pop_back();
    return block;
  }
  return nullptr;
}

// Where the stream cannot free it (memory of a graph), the whole device is waited for.
void MemoryPool::free_in_stream(void* block) noexcept {
  const auto found = size_of_.find(block);
  statistics_.reserved -= found->second;
  size_of_.erase(found);
  if (cudaFreeAsync(block, stream_) == cudaSuccess) return;
  (void)cudaGetLastError();  // handled: the next check must not find it
  if (cudaFree(block) != cudaSuccess) (void)cudaGetLastError();
}

void* MemoryPool::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const size_t size = caches_ ? rounded(bytes) : bytes;
  void* block = take_cached(size);
  if (block == nullptr) {
    const PhysicalDeviceGuard guard(physical_);
    const RelaxedCapture relaxed;
    cudaError_t status = cudaMalloc(&block, size);
    if (status == cudaErrorMemoryAllocation && !capturing_) {
      (void)cudaGetLastError();
      free_cached();
      if (!caches_) LOCKSTEP_CUDA(cudaStreamSynchronize(stream_));  // for what it is about to free
      status = cudaMalloc(&block, size);
    }
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      size_t free = 0, total = 0;
      LOCKSTEP_CUDA(cudaMemGetInfo(&free, &total));
      throw OutOfMemory(
          fmt::format("{} is out of memory: asked for {} bytes, {} of {} are free ({} in use by "
                      "tensors): use a smaller batch or model",
                      name_, bytes, free, total, statistics_.in_use));
    }
    if (status != cudaSuccess) detail::throw_cuda(status, "cudaMalloc(&block, size)", __FILE__, __LINE__);
    size_of_.emplace(block, size);
    statistics_.reserved += size;
  }
  statistics_.in_use += size;
  statistics_.peak = std::max(statistics_.peak, statistics_.in_use);
  return block;
}

void MemoryPool::release(void* block) noexcept {
  if (block == nullptr) return;
  const std::lock_guard lock(mutex_);
  const size_t size = size_of_.at(block);
  statistics_.in_use -= size;
  if (!caches_ && !capturing_) return free_in_stream(block);
  (capturing_ ? captured_ : cached_)[size].push_back(block);
}

PoolStatistics MemoryPool::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void MemoryPool::free_cached() {
  const PhysicalDeviceGuard guard(physical_);
  for (auto& [size, blocks] : cached_) {
    for (void* block : blocks) {
      LOCKSTEP_CUDA(cudaFree(block));
      size_of_.erase(block);
      statistics_.reserved -= size;
    }
    blocks.clear();
  }
}

void MemoryPool::begin_capture() {
  const std::lock_guard lock(mutex_);
  if (capturing_) throw Error(fmt::format("{}: a capture is already going on", name_));
  capturing_ = true;
}

std::vector<void*> MemoryPool::end_capture() {
  const std::lock_guard lock(mutex_);
  capturing_ = false;
  std::vector<void*> kept;
  for (const auto& [size, blocks] : captured_) kept.insert(kept.end(), blocks.begin(), blocks.end());
  captured_.clear();
  return kept;
}

void MemoryPool::give_back(const std::vector<void*>& blocks) noexcept {
  const std::lock_guard lock(mutex_);
  for (void* block : blocks) {
    if (caches_)
      cached_[size_of_.at(block)].push_back(block);
    else
      free_in_stream(block);
  }
}

}  // namespace lockstep
