// One block of a kernel, its threads run as fibers by one OS thread. A thread runs until it has to wait (at a
// barrier, or for other lanes of its warp) or ends. One that ends hands its stack to the next thread, so a
// kernel without barriers is a loop on one stack; one that waits keeps its stack until it may go on.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hostcuda/launch.h>
#include "hostcuda/src/kernels/fiber.h"
#include "hostcuda/src/kernels/observer.h"
#include "hostcuda/src/runtime/race.h"

namespace hostcuda {

class Block {
 public:
  static constexpr int kMaxThreads = 1024;
  static constexpr int kWarpLanes = 32;

  Block();

  // Before the blocks of a launch: its shape, and in checked mode the order in which its threads run.
  void prepare(const KernelLaunch& launch);

  // Runs all threads of the block that blockIdx names, before the eyes of `observer` (null: nobody's). An
  // error means that the kernel was abandoned.
  cudaError_t run(KernelObserver* observer = nullptr);

  // Called by the threads, through the functions of device.h.
  int barrier(detail::BarrierResult result, bool predicate, const detail::Site& site);
  uint64_t warp_rendezvous(detail::WarpOperation operation, unsigned mask, uint64_t value, int source,
                           const detail::Site& site);
  unsigned converge(const detail::Site& site);
  int lane() const { return current_ % kWarpLanes; }
  void fence() {
    if (observer_ != nullptr) observer_->fence();
  }

  // Called by the observer: lets all other threads that can run have a turn before the running one goes on.
  void yield();

  // Reports a fault of the running thread and gives the kernel up.
  [[noreturn]] void abandon(cudaError_t error, const std::string& fault, const std::string& details);

  // Leaves the running thread for good, as it stands, with `error` as the result of run().
  [[noreturn]] void leave(cudaError_t error);

  const KernelLaunch& launch() const { return *launch_; }
  int thread() const { return current_; }
  int threads() const { return count_; }
  const uint3& thread_index() const { return index_[current_]; }
  const uint3& thread_index(int thread) const { return index_[thread]; }
  const Fiber& running_fiber() const { return *running_; }

 private:
  enum class Wait : uint8_t { none, barrier, warp, convergence };

  struct alignas(64) Thread {
    Fiber* fiber;       // null before the thread's start
    detail::Site site;  // of what it waits at
    // The warp operation that it waits at.
    uint64_t value;
    uint64_t result;
    int source;
    unsigned mask;
    detail::WarpOperation operation;
    Wait wait;
  };

  struct Warp {
    unsigned live;        // lanes that exist and have not exited
    unsigned waiting;     // lanes that wait in a warp operation
    unsigned converging;  // lanes that wait for the others to come or to be unable to
  };

  // A set of threads, by their position in the order of running.
  using Positions = std::array<uint64_t, kMaxThreads / 64>;

  static void fiber_body(void* block);
  void run_threads();
  void run_thread();
  void exit_thread();
  void suspend();
  int next_thread();
  void go_on_with(int thread);
  Fiber& fiber_to_start(int thread);
  void release_barrier();
  bool complete_warp(int warp, unsigned mask);
  void complete_convergence(int warp);
  void finish_shuffle(int warp, unsigned lanes);
  void mark_runnable(int thread);
  bool is_runnable(int thread) const;
  static bool same_site(const detail::Site& a, const detail::Site& b);
  void choose_order();
  void choose_fibers();
  [[noreturn]] void abandon_divergence(const detail::Site& site);
  [[noreturn]] void abandon_deadlock();
  void warn_exited_at_barrier();
  [[noreturn]] void abandon_thread(int thread, cudaError_t error, const std::string& fault,
                                   const std::string& details);
  void warn_once(bool& warned, const std::string& fault, const std::string& details);

  const KernelLaunch* launch_ = nullptr;
  KernelObserver* observer_ = nullptr;
  bool checked_ = false;
  int count_ = 0;  // threads of the block
  dim3 shape_{0, 0, 0};
  std::vector<uint3> index_;   // threadIdx of each thread
  std::vector<int> order_;     // position -> thread
  std::vector<int> position_;  // thread -> position
  std::minstd_rand random_;
  bool random_order_ = false;

  std::vector<Thread> threads_;
  std::array<Warp, kMaxThreads / kWarpLanes> warps_{};
  Positions runnable_{};  // not started yet, or able to go on
  int current_ = 0;
  int live_ = 0;
  int started_ = 0;
  cudaError_t status_ = cudaSuccess;

  // The barrier that threads wait at now, and the result of the one before.
  Positions at_barrier_{};
  int arrived_ = 0;
  int first_arrived_ = 0;
  int predicates_ = 0;
  int barrier_generation_ = 0;
  int result_arrived_ = 0;
  int result_predicates_ = 0;

  // Addresses that stand for the start and the end of the block, its barriers, and each warp's operations
  // (by the first lane of the mask), for the thread sanitizer. Two a barrier, used in turn: a thread that
  // runs ahead to the next barrier must not be taken to have been at this one.
  uint64_t start_sync_ = 0;
  uint64_t end_sync_ = 0;
  std::array<uint64_t, 2> barrier_sync_{};
  std::vector<std::array<uint64_t, 2>> warp_sync_;
  std::vector<int> warp_generation_;

  bool warned_exited_at_barrier_ = false;
  bool warned_exited_in_mask_ = false;

  Fiber main_;
  Fiber* running_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  // Thread sanitizer only: the stream that fibers_ are of, and those of other streams.
  race::Fiber keeper_;
  void* stream_ = nullptr;
  std::vector<std::pair<void*, std::vector<std::unique_ptr<Fiber>>>> fibers_of_stream_;
};

// The block that this OS thread runs as fibers; null outside of one.
Block* running_block();

}  // namespace hostcuda
