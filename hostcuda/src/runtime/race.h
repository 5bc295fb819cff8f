// What the thread sanitizer is told. In its build every stream has a thread of its own, and threads are
// ordered by exactly CUDA's edges: enqueue before operation, operation before the next of its stream, record
// before wait, operation before the host that synchronised with it. All of the runtime's own work is out of
// its sight: its locks order nothing, so a missing cudaStreamWaitEvent is a race whatever the timing. In
// other builds all of this is empty.
#pragma once

#if defined(__SANITIZE_THREAD__) || defined(HOSTCUDA_TSAN)
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
}
#endif

namespace hostcuda::race {

#if defined(__SANITIZE_THREAD__) || defined(HOSTCUDA_TSAN)
inline constexpr bool kDetected = true;

inline thread_local bool hidden = false;

inline void set_hidden(bool hide) {
  if (hide == hidden) return;
  hidden = hide;
  if (hide) {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  } else {
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
}

// While one lives, what the thread does is hidden from the sanitizer (true) or seen by it (false).
class Hidden {
 public:
  explicit Hidden(bool hide = true) : before_(hidden) { set_hidden(hide); }
  ~Hidden() { set_hidden(before_); }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

 private:
  const bool before_;
};

// What happened before release(token) happens before what follows acquire(token).
inline void release(const void* token) {
  const Hidden seen(false);
  __tsan_release(const_cast<void*>(token));
}
inline void acquire(const void* token) {
  const Hidden seen(false);
  __tsan_acquire(const_cast<void*>(token));
}

// A context of its own to the sanitizer, for what a worker keeps between launches.
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
struct Hidden {
  explicit Hidden(bool = true) {}
  ~Hidden() {}  // NOLINT(modernize-use-equals-default): not trivial, so that the variable counts as used
};
struct Fiber {};
struct Inside {
  explicit Inside(Fiber&) {}
  ~Inside() {}  // NOLINT(modernize-use-equals-default): the same
};
#endif

}  // namespace hostcuda::race
