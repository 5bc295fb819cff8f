// What the thread sanitizer is told. In its build every stream is a fiber of its own to the sanitizer, and
// fibers are ordered by exactly CUDA's edges: enqueue before operation, operation before the next of its
// stream, record before wait, operation before the host that synchronised with it. The scheduler's own locks
// are taken outside the fibers and order nothing, so a missing cudaStreamWaitEvent is a race whatever the
// timing. In other builds all of this is empty.
#pragma once

#if defined(__SANITIZE_THREAD__) || defined(HOSTCUDA_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace hostcuda::race {

#if defined(__SANITIZE_THREAD__) || defined(HOSTCUDA_TSAN)
inline constexpr bool kDetected = true;

// What happened before release(token) happens before what follows acquire(token).
inline void release(const void* token) {
  __tsan_release(const_cast<void*>(token));
}
inline void acquire(const void* token) {
  __tsan_acquire(const_cast<void*>(token));
}

class Fiber {
 public:
  Fiber() = default;
  ~Fiber() {
    if (fiber_ != nullptr) __tsan_destroy_fiber(fiber_);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  void* get() {
    if (fiber_ == nullptr) fiber_ = __tsan_create_fiber(0);
    return fiber_;
  }

 private:
  void* fiber_ = nullptr;
};

// While one lives, the calling thread is `fiber` to the sanitizer.
class Inside {
 public:
  __attribute__((no_sanitize("thread"))) explicit Inside(Fiber& fiber)
      : outside_(__tsan_get_current_fiber()) {
    __tsan_switch_to_fiber(fiber.get(), __tsan_switch_to_fiber_no_sync);
  }
  __attribute__((no_sanitize("thread"))) ~Inside() {
    __tsan_switch_to_fiber(outside_, __tsan_switch_to_fiber_no_sync);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  void* const outside_;
};

#else
inline constexpr bool kDetected = false;
inline void release(const void*) {}
inline void acquire(const void*) {}
struct Fiber {};
struct Inside {
  explicit Inside(Fiber&) {}
  ~Inside() {}  // not trivial, so that the variable counts as used
};
#endif

}  // namespace hostcuda::race
