// A stack to run code on and to leave in the middle. Fibers belong to the OS thread that made them and never
// move to another one, so the address of a thread_local variable stays what the compiler took it for.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

#if defined(HOSTCUDA_TSAN)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace hostcuda {

// The sanitizers follow a program by its stacks and must be told of every switch. The thread sanitizer takes
// each fiber for a thread of its own, which is what lets it see a race between two threads of a block.
#if defined(HOSTCUDA_TSAN)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// What a fiber did before a release is seen by one after an acquire of the same address: how barriers are
// told to the thread sanitizer.
inline void sanitizer_release([[maybe_unused]] void* address) {
#if defined(HOSTCUDA_TSAN)
  __tsan_release(address);
#endif
}

inline void sanitizer_acquire([[maybe_unused]] void* address) {
#if defined(HOSTCUDA_TSAN)
  __tsan_acquire(address);
#endif
}

class Fiber {
 public:
  // The stack that the OS thread came with: only a place to switch away from and back to.
  Fiber() = default;

  // A stack of its own; the first switch to it calls body(argument), which must never return.
  Fiber(void (*body)(void*), void* argument);

  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Leaves `from`, which must be the one that runs, and goes on in `to`; returns when someone switches back.
  static void switch_from_to(Fiber& from, Fiber& to);

  // Forgets what the fiber was doing: the next switch to it begins at the top of its body again.
  void restart();

  // Makes the stack that the OS thread came with stand for what runs there now, to the thread sanitizer.
  void adopt_sanitizer_fiber();
  void* sanitizer_fiber() const { return sanitizer_fiber_; }

  // Whether `address` lies on the stack.
  bool contains(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) -
                               static_cast<const std::byte*>(stack_bottom_)) < stack_bytes_;
  }

  // Whether `address` lies in the page below the stack, that is, the stack has run over.
  bool guards(const void* address) const;

 private:
  static void start(boost::context::detail::transfer_t transfer);
  void arrive(boost::context::detail::transfer_t transfer);

  void* context_ = nullptr;
  Fiber* next_ = nullptr;  // where the last switch away from here went
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::byte* mapping_ = nullptr;  // the guard page and the stack above it
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  size_t colour_ = 0;                // bytes at the top that stay unused
  void* fake_stack_ = nullptr;       // the address sanitizer's
  void* sanitizer_fiber_ = nullptr;  // the thread sanitizer's
};

// Runs on the fiber that was switched to, and notes where the one that left stands.
inline void Fiber::arrive(boost::context::detail::transfer_t transfer) {
  Fiber& from = *static_cast<Fiber*>(transfer.data);
  from.context_ = transfer.fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &from.stack_bottom_, &from.stack_bytes_);
#endif
}

inline void Fiber::switch_from_to(Fiber& from, Fiber& to) {
  from.next_ = &to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_bottom_, to.stack_bytes_);
#endif
#if defined(HOSTCUDA_TSAN)
  __tsan_switch_to_fiber(to.sanitizer_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
  from.arrive(boost::context::detail::jump_fcontext(to.context_, &from));
}

}  // namespace hostcuda
