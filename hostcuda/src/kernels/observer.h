// Whoever watches a kernel's threads while they run: the profile (src/profile) is the only one. The executor
// and the block tell it what happens; what each thread reads and writes it learns from the compiler's
// callbacks. Programs whose device code was compiled without these link no observer at all.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <hostcuda/launch.h>

namespace hostcuda {

class Block;

// The dynamic shared memory of a thread's blocks: a launch's lies in what was mapped for it.
struct SharedBounds {
  std::byte* begin;
  std::byte* mapping_begin;
  std::byte* mapping_end;  // with the page that cannot be touched
};

class KernelObserver {
 public:
  KernelObserver() = default;
  virtual ~KernelObserver() = default;
  KernelObserver(const KernelObserver&) = delete;
  KernelObserver& operator=(const KernelObserver&) = delete;

  // Around the blocks from `first_block` on of a launch, on the thread that runs them.
  virtual void begin_launch(const KernelLaunch& launch, uint64_t first_block, const SharedBounds& shared) = 0;
  virtual void end_launch() = 0;

  // Around a block; begin_block says whether it is watched. What follows is told of watched blocks alone.
  virtual bool begin_block(Block& block, uint64_t index) = 0;
  virtual void end_block() = 0;

  // All threads that live have come to a barrier.
  virtual void barrier() = 0;
  // The lanes `lanes` of a warp have met in a shuffle, a vote or a __syncwarp, which `ended` would have
  // joined.
  virtual void warp_met(int warp, unsigned lanes, unsigned ended) = 0;
  // A thread has executed a __threadfence.
  virtual void fence() = 0;
};

// What observes the kernels that the calling thread runs; null where nobody does.
KernelObserver* kernel_observer();

// Called before main by an observer that is linked in: makes the one of a worker thread.
void register_observer(KernelObserver* (*of_this_thread)());

}  // namespace hostcuda
