// Cooperative launches: all blocks of a grid at the same time, each on a thread of its own, so that each has
// its own shared memory and a grid's barrier may hold it.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "hostcuda/src/kernels/block.h"
#include "hostcuda/src/kernels/execution.h"

namespace hostcuda {
namespace {

// A barrier that those leave for good whose block has ended.
class GridBarrier {
 public:
  explicit GridBarrier(uint64_t blocks) : blocks_(blocks) {}

  void wait() {
    std::unique_lock hold(mutex_);
    const uint64_t generation = generation_;
    if (++arrived_ == blocks_) return release();
    released_.wait(hold, [&] { return generation_ != generation; });
  }

  void leave() {
    const std::lock_guard hold(mutex_);
    --blocks_;
    if (arrived_ == blocks_ && blocks_ > 0) release();
  }

 private:
  void release() {
    arrived_ = 0;
    ++generation_;
    released_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable released_;
  uint64_t blocks_, arrived_ = 0, generation_ = 0;
};

thread_local GridBarrier* grid_barrier_of_block = nullptr;

}  // namespace

cudaError_t run_cooperative(const KernelLaunch& launch, uint64_t blocks) {
  GridBarrier barrier(blocks);
  std::atomic<cudaError_t> first_error{cudaSuccess};
  std::vector<std::thread> threads;
  for (uint64_t block = 0; block < blocks; ++block)
    threads.emplace_back([&, block] {
      grid_barrier_of_block = &barrier;
      const cudaError_t error = run_blocks(launch, block, block + 1);
      barrier.leave();
      cudaError_t none = cudaSuccess;
      if (error != cudaSuccess) first_error.compare_exchange_strong(none, error);
    });
  for (std::thread& thread : threads) thread.join();
  return first_error;
}

namespace detail {

bool grid_is_cooperative() {
  return grid_barrier_of_block != nullptr;
}

void grid_barrier(const Site& site) {
  if (grid_barrier_of_block == nullptr)
    running_block()->abandon(cudaErrorLaunchFailure, "grid barrier in a launch that is not cooperative",
                             "launch the kernel with cudaLaunchCooperativeKernel");
  // One thread waits for the other blocks, those of its block for it.
  barrier(BarrierResult::none, false, site);
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) grid_barrier_of_block->wait();
  barrier(BarrierResult::none, false, site);
}

}  // namespace detail
}  // namespace hostcuda
