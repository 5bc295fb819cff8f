// The threads of a block taking turns: who runs next, where one waits at a barrier, how a faulty one is left.
#include "hostcuda/src/kernels/block.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <numeric>

#include "hostcuda/src/runtime/report.h"

namespace hostcuda {

namespace {

// Thrown where a thread gives the kernel up, after the report: frees what its stack holds on the way.
struct Abandoned {
  cudaError_t error;
};

thread_local Block* current_block = nullptr;

template <typename Positions>
void set(Positions& positions, int position) {
  positions[position / 64] |= uint64_t{1} << (position % 64);
}

template <typename Positions>
void clear(Positions& positions, int position) {
  positions[position / 64] &= ~(uint64_t{1} << (position % 64));
}

// The first member at or after `from`, going round; -1 if there is none.
template <typename Positions>
int next_member(const Positions& positions, int from) {
  const int words = static_cast<int>(positions.size());
  const int first = from / 64 % words;
  const uint64_t rest = positions[first] & (~uint64_t{0} << (from % 64));
  if (rest != 0) return first * 64 + std::countr_zero(rest);
  for (int i = 1; i <= words; ++i) {
    const int word = (first + i) % words;
    if (positions[word] != 0) return word * 64 + std::countr_zero(positions[word]);
  }
  return -1;
}

}  // namespace

bool Block::is_runnable(int thread) const {
  return (runnable_[static_cast<size_t>(position_[thread]) / 64] >> (position_[thread] % 64) & 1) != 0;
}

bool Block::same_site(const detail::Site& a, const detail::Site& b) {
  return a.line() == b.line() && a.column() == b.column() && std::string_view(a.file_name()) == b.file_name();
}

Block* running_block() {
  return current_block;
}

Block::Block() : threads_(kMaxThreads), warp_sync_(kMaxThreads), warp_generation_(kMaxThreads) {}

void Block::prepare(const KernelLaunch& launch) {
  if (kThreadSanitizer) main_.adopt_sanitizer_fiber();
  // What a worker keeps between launches is made and freed as one thread, whichever stream comes.
  const race::Inside as_keeper(keeper_);
  launch_ = &launch;
  checked_ = checked_mode();
  warned_exited_at_barrier_ = warned_exited_in_mask_ = false;
  const bool same_shape =
      launch.block.x == shape_.x && launch.block.y == shape_.y && launch.block.z == shape_.z;
  if (!same_shape) {
    shape_ = launch.block;
    count_ = static_cast<int>(shape_.x * shape_.y * shape_.z);
    index_.clear();
    for (unsigned z = 0; z < shape_.z; ++z)
      for (unsigned y = 0; y < shape_.y; ++y)
        for (unsigned x = 0; x < shape_.x; ++x) index_.push_back({x, y, z});
    order_.resize(count_);
    position_.resize(count_);
    std::iota(order_.begin(), order_.end(), 0);
    std::iota(position_.begin(), position_.end(), 0);
  }
  if (kThreadSanitizer) choose_fibers();
}

// For the thread sanitizer every stream is a thread (race.h), and so must be every CUDA thread of a stream:
// were they shared between streams, the order in which these happen to run would hide a missing wait.
void Block::choose_fibers() {
  constexpr size_t kStreams = 4;  // the sanitizer can take 8,000 threads in all
  constexpr size_t kKept = 256;
  if (fibers_.size() > kKept) fibers_.resize(kKept);
  fibers_of_stream_.push_back({stream_, std::move(fibers_)});
  stream_ = main_.sanitizer_fiber();
  fibers_.clear();
  for (auto kept = fibers_of_stream_.begin(); kept != fibers_of_stream_.end(); ++kept) {
    if (kept->first != stream_) continue;
    fibers_ = std::move(kept->second);
    fibers_of_stream_.erase(kept);
    break;
  }
  if (fibers_of_stream_.size() > kStreams) fibers_of_stream_.erase(fibers_of_stream_.begin());
  while (fibers_.size() < static_cast<size_t>(count_))
    fibers_.push_back(std::make_unique<Fiber>(fiber_body, this));
}

// Seed 0 runs the threads forward, seed 1 backward, any other in an order of its own for every block.
void Block::choose_order() {
  const uint64_t seed = schedule_seed();
  random_order_ = seed > 1;
  std::iota(order_.begin(), order_.end(), 0);
  if (seed == 1) std::reverse(order_.begin(), order_.end());
  if (random_order_) {
    const uint64_t block = (uint64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    random_.seed(static_cast<unsigned>(seed * 1000003 + block * 7919 + 1));
    std::shuffle(order_.begin(), order_.end(), random_);
  }
  for (int position = 0; position < count_; ++position) position_[order_[position]] = position;
}

cudaError_t Block::run(KernelObserver* observer) {
  observer_ = observer;
  if (checked_) choose_order();
  runnable_ = {};
  for (int position = 0; position < count_; position += 64)
    runnable_[position / 64] =
        count_ - position >= 64 ? ~uint64_t{0} : (uint64_t{1} << (count_ - position)) - 1;
  for (int thread = 0; thread < count_; ++thread) {
    threads_[thread].fiber = nullptr;
    threads_[thread].wait = Wait::none;
  }
  for (int thread = 0; thread < count_; thread += kWarpLanes) {
    const int lanes = std::min(kWarpLanes, count_ - thread);
    warps_[thread / kWarpLanes] = {lanes == kWarpLanes ? ~0u : (1u << lanes) - 1, 0, 0};
  }
  live_ = count_;
  at_barrier_ = {};
  arrived_ = predicates_ = 0;
  status_ = cudaSuccess;

  sanitizer_release(&start_sync_);
  current_ = order_[0];
  running_ = &fiber_to_start(current_);
  threads_[current_].fiber = running_;
  current_block = this;
  detail::threads_are_fibers = true;
  Fiber::switch_from_to(main_, *running_);
  detail::threads_are_fibers = false;
  current_block = nullptr;
  sanitizer_acquire(&end_sync_);

  if (status_ != cudaSuccess) {
    const race::Inside as_keeper(keeper_);
    free_.clear();
    for (const auto& fiber : fibers_) {
      fiber->restart();
      if (!kThreadSanitizer) free_.push_back(fiber.get());
    }
  }
  return status_;
}

void Block::fiber_body(void* block) {
  static_cast<Block*>(block)->run_threads();
}

// What every fiber does, for ever: runs the thread that it was started for, and then as many others as have
// not started yet; where those that wait come first, it goes back to the pool and lets them go on.
void Block::run_threads() {
  for (;;) {
    int next = -1;
    try {
      run_thread();
      next = next_thread();
      if (next < 0 && live_ > 0) abandon_deadlock();
    } catch (const Abandoned& abandoned) {
      status_ = abandoned.error;
    }
    if (status_ != cudaSuccess) leave(status_);
    if (!kThreadSanitizer && next >= 0 && threads_[next].fiber == nullptr) {
      threads_[next].fiber = running_;
      current_ = next;
      continue;
    }
    Fiber& here = *running_;
    if (!kThreadSanitizer) free_.push_back(&here);
    if (next < 0)
      Fiber::switch_from_to(here, main_);
    else
      go_on_with(next);
  }
}

void Block::run_thread() {
  sanitizer_acquire(&start_sync_);
  threadIdx = index_[current_];
  try {
    launch_->thread();
  } catch (const Abandoned&) {
    throw;
  } catch (const std::exception& exception) {
    abandon(cudaErrorLaunchFailure, "exception", exception.what());
  } catch (...) {
    abandon(cudaErrorLaunchFailure, "exception", "of an unknown type");
  }
  exit_thread();
  sanitizer_release(&end_sync_);
}

// Whoever waits for the others of a block or of a warp does not wait for those that have ended.
void Block::exit_thread() {
  sanitizer_release(&barrier_sync_[barrier_generation_ % 2]);  // it counts as arrived
  clear(runnable_, position_[current_]);
  --live_;
  Warp& warp = warps_[current_ / kWarpLanes];
  warp.live &= ~(1u << lane());
  if (arrived_ > 0 && arrived_ == live_) release_barrier();
  for (unsigned rest = warp.waiting; rest != 0; rest &= rest - 1) {
    const int thread = current_ / kWarpLanes * kWarpLanes + std::countr_zero(rest);
    if (threads_[thread].wait == Wait::warp) complete_warp(current_ / kWarpLanes, threads_[thread].mask);
  }
  complete_convergence(current_ / kWarpLanes);
}

int Block::next_thread() {
  int from = position_[current_] + 1;
  if (random_order_) from = static_cast<int>(random_() % static_cast<unsigned>(count_));
  const int position = next_member(runnable_, from);
  return position < 0 ? -1 : order_[position];
}

// A new thread takes a stack from the pool; under the thread sanitizer each thread has its own, because two
// threads on one stack would look like one to it, and could not race.
Fiber& Block::fiber_to_start(int thread) {
  if (kThreadSanitizer) return *fibers_[thread];
  if (free_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(fiber_body, this));
    return *fibers_.back();
  }
  Fiber* fiber = free_.back();
  free_.pop_back();
  return *fiber;
}

void Block::go_on_with(int thread) {
  Fiber& from = *running_;
  current_ = thread;
  if (threads_[thread].fiber == nullptr) threads_[thread].fiber = &fiber_to_start(thread);
  running_ = threads_[thread].fiber;
  if (running_ != &from) Fiber::switch_from_to(from, *running_);
}

// The running thread has noted what it waits for; the others run until it is there.
void Block::suspend() {
  const int thread = current_;
  clear(runnable_, position_[thread]);
  complete_convergence(thread / kWarpLanes);
  const int next = next_thread();
  if (next < 0) abandon_deadlock();
  if (next != thread) go_on_with(next);
  threadIdx = index_[thread];
}

void Block::yield() {
  const int thread = current_;
  const int next = next_thread();
  if (next == thread) return;
  go_on_with(next);
  threadIdx = index_[thread];
}

void Block::mark_runnable(int thread) {
  threads_[thread].wait = Wait::none;
  set(runnable_, position_[thread]);
}

int Block::barrier(detail::BarrierResult result, bool predicate, const detail::Site& site) {
  Thread& self = threads_[current_];
  if (arrived_ == 0) {
    first_arrived_ = current_;
  } else if (checked_ && !same_site(site, threads_[first_arrived_].site)) {
    abandon_divergence(site);
  }
  self.wait = Wait::barrier;
  self.site = site;
  set(at_barrier_, position_[current_]);
  ++arrived_;
  predicates_ += predicate;
  uint64_t* sync = &barrier_sync_[barrier_generation_ % 2];
  sanitizer_release(sync);
  if (arrived_ == live_)
    release_barrier();
  else
    suspend();
  sanitizer_acquire(sync);
  switch (result) {
    case detail::BarrierResult::count:
      return result_predicates_;
    case detail::BarrierResult::all:
      return result_predicates_ == result_arrived_;
    case detail::BarrierResult::any:
      return result_predicates_ > 0;
    default:
      return 0;
  }
}

void Block::release_barrier() {
  if (checked_ && live_ < count_) warn_exited_at_barrier();
  if (observer_ != nullptr) observer_->barrier();
  for (size_t word = 0; word < runnable_.size(); ++word) {
    runnable_[word] |= at_barrier_[word];
    at_barrier_[word] = 0;
  }
  result_arrived_ = arrived_;
  result_predicates_ = predicates_;
  arrived_ = predicates_ = 0;
  ++barrier_generation_;
}

void Block::abandon_divergence(const detail::Site& site) {
  abandon(cudaErrorLaunchFailure, "barrier divergence",
          "waits at " + format_site(site) + " while thread " + format_index(index_[first_arrived_]) +
              " waits at " + format_site(threads_[first_arrived_].site));
}

void Block::warn_exited_at_barrier() {
  warn_once(warned_exited_at_barrier_, "warning: barrier after some threads have ended",
            std::to_string(count_ - live_) + " of " + std::to_string(count_) +
                " threads have ended, the others wait at " + format_site(threads_[first_arrived_].site));
}

void Block::warn_once(bool& warned, const std::string& fault, const std::string& details) {
  if (warned) return;
  warned = true;
  report_fault(fault, *launch_, blockIdx, nullptr, details);
}

void Block::leave(cudaError_t error) {
  status_ = error;
  Fiber::switch_from_to(*running_, main_);
  std::terminate();  // nobody comes back here
}

void Block::abandon(cudaError_t error, const std::string& fault, const std::string& details) {
  abandon_thread(current_, error, fault, details);
}

void Block::abandon_thread(int thread, cudaError_t error, const std::string& fault,
                           const std::string& details) {
  report_fault(fault, *launch_, blockIdx, &index_[thread], details);
  throw Abandoned{error};
}

// Nobody can run, so somebody waits for lanes of its warp that have gone elsewhere (all others would be at
// one barrier, and go on).
void Block::abandon_deadlock() {
  int thread = 0;
  while (threads_[thread].wait != Wait::warp) ++thread;
  const Thread& waiting = threads_[thread];
  const Warp& warp = warps_[thread / kWarpLanes];
  std::string details = "waits at " + format_site(waiting.site) + " for lanes that never come";
  if (const unsigned absent = waiting.mask & warp.live & ~warp.waiting; absent != 0) {
    const int other = thread / kWarpLanes * kWarpLanes + std::countr_zero(absent);
    details += "; thread " + format_index(index_[other]) + " waits at " + format_site(threads_[other].site);
  }
  abandon_thread(thread, cudaErrorLaunchTimeout, "warp operation with absent lanes", details);
}

namespace detail {

HOSTCUDA_TLS bool threads_are_fibers = false;

int barrier(BarrierResult result, bool predicate, const Site& site) {
  return current_block->barrier(result, predicate, site);
}

uint64_t warp_rendezvous(WarpOperation operation, unsigned mask, uint64_t value, int source,
                         const Site& site) {
  return current_block->warp_rendezvous(operation, mask, value, source, site);
}

int lane() {
  return current_block == nullptr ? 0 : current_block->lane();
}

unsigned active_mask(const Site& site) {
  return current_block->converge(site);
}

}  // namespace detail
}  // namespace hostcuda
