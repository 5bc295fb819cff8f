// The stacks of fibers; the switch itself is Boost.Context's jump_fcontext (in fiber.h), 5 ns.
#include "hostcuda/src/kernels/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace hostcuda {

namespace {

constexpr size_t kStackBytes = kThreadSanitizer || kAddressSanitizer ? size_t{256} << 10 : size_t{64} << 10;

constexpr size_t kColours = 32, kColourBytes = 128;

size_t guard_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

void Fiber::start(boost::context::detail::transfer_t transfer) {
  Fiber& here = *static_cast<Fiber*>(transfer.data)->next_;
  here.arrive(transfer);
  here.body_(here.argument_);
}

void Fiber::adopt_sanitizer_fiber() {
#if defined(HOSTCUDA_TSAN)
  sanitizer_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*body)(void*), void* argument) : body_(body), argument_(argument) {
  void* memory = mmap(nullptr, guard_bytes() + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(memory);
  mprotect(mapping_, guard_bytes(), PROT_NONE);
  stack_bottom_ = mapping_ + guard_bytes();
  stack_bytes_ = kStackBytes;
  // The stacks of a block's threads begin at different places of their pages: a cache keeps few lines of one
  // place.
  static std::atomic<size_t> made{0};
  colour_ = made.fetch_add(1, std::memory_order_relaxed) % kColours * kColourBytes;
  restart();
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
#if defined(HOSTCUDA_TSAN)
  if (sanitizer_fiber_ != nullptr) __tsan_destroy_fiber(sanitizer_fiber_);
#endif
  munmap(mapping_, guard_bytes() + kStackBytes);
}

void Fiber::restart() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(mapping_ + guard_bytes(), kStackBytes);
  fake_stack_ = nullptr;
#endif
#if defined(HOSTCUDA_TSAN)
  if (sanitizer_fiber_ != nullptr) __tsan_destroy_fiber(sanitizer_fiber_);
  sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
  std::byte* top = mapping_ + guard_bytes() + kStackBytes - colour_;
  context_ = boost::context::detail::make_fcontext(top, kStackBytes - colour_, start);
}

bool Fiber::guards(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  return mapping_ != nullptr && byte >= mapping_ && byte < mapping_ + guard_bytes();
}

}  // namespace hostcuda
