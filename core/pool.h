// A caching memory pool: what a tensor gives back is handed to the next one of its size, without asking the
// driver. Reuse is ordered by one stream: a block may be handed out again while the work that used it is
// still enqueued, because the next user enqueues on the same stream, behind it. With LOCKSTEP_POOL=0 in the
// environment nothing is rounded or kept: every tensor has an allocation of its own, of its size, freed where
// the stream comes to its end, so that tools which watch memory (compute-sanitizer, HOSTCUDA_CHECK) see it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep {

struct PoolStatistics {
  size_t in_use = 0;    // bytes handed out
  size_t peak = 0;      // the largest in_use so far
  size_t reserved = 0;  // bytes taken from the driver: in use or cached
};

class MemoryPool {
 public:
  // Memory of physical device `physical`, used by work on `stream`; `name` ("device 1") is for errors.
  MemoryPool(int physical, std::string name, cudaStream_t stream);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // At least `bytes` bytes, aligned as cudaMalloc aligns; null for 0. Throws OutOfMemory, saying what was
  // requested and what is free, after it has tried again without its cache.
  void* allocate(size_t bytes);
  // Takes a block back. Every use of it on other streams must be ordered before the pool's stream by now.
  void release(void* block) noexcept;

  PoolStatistics statistics() const;

  // Between these two, what is released is kept apart: a captured graph goes on using it at every replay.
  // end_capture returns those blocks, which are out of use until give_back.
  void begin_capture();
  std::vector<void*> end_capture();
  void give_back(const std::vector<void*>& blocks) noexcept;

 private:
  void* take_cached(size_t size);
  void free_in_stream(void* block) noexcept;
  // Gives cached blocks back to the driver, which synchronises the device.
  void free_cached();

  const int physical_;
  const std::string name_;
  const cudaStream_t stream_;
  const bool caches_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, size_t> size_of_;      // every block, cached or in use
  std::map<size_t, std::vector<void*>> cached_;    // by size, ready to hand out
  std::map<size_t, std::vector<void*>> captured_;  // released while capturing
  bool capturing_ = false;
  PoolStatistics statistics_;
};

}  // namespace lockstep
