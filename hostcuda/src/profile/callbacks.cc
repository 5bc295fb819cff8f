// The functions that g++ calls from code compiled with -fsanitize=thread, before each load and store and in
// place of each atomic operation. They stand in for the sanitizer's runtime, which is not linked; the linker
// takes this file from the library only for a program that was compiled so. Outside of a watched block they
// do nothing but what is asked for.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "hostcuda/src/kernels/observer.h"
#include "hostcuda/src/profile/profile.h"
#include "hostcuda/src/profile/recorder.h"

using hostcuda::profile::active_recorder;
using hostcuda::profile::Kind;

namespace {

const bool registered = [] {
  hostcuda::register_observer(hostcuda::profile::recorder_of_this_thread);
  if (const char* file = std::getenv("HOSTCUDA_PROFILE"); file != nullptr && *file != '\0')
    hostcuda::profile::write_profile_at_exit();
  hostcuda::profile::prepare_forecast();  // a program may ask for it later
  return true;
}();

}  // namespace

// Macros: the address that a function returns to must be asked for in the function itself.
#define RECORD(address, bytes, kind, writes, counts)                                          \
  do {                                                                                        \
    if (active_recorder != nullptr) [[unlikely]]                                              \
      active_recorder->access({__builtin_return_address(0), const_cast<const void*>(address), \
                               static_cast<unsigned>(bytes), kind, writes, counts});          \
  } while (false)

#define LOADS_AND_STORES(prefix, bytes)               \
  void __tsan_##prefix##read##bytes(void* address) {  \
    RECORD(address, bytes, Kind::load, false, true);  \
  }                                                   \
  void __tsan_##prefix##write##bytes(void* address) { \
    RECORD(address, bytes, Kind::store, true, true);  \
  }

#define ATOMIC_UPDATE(bits, name)                                                                          \
  uint##bits##_t __tsan_atomic##bits##_fetch_##name(volatile void* address, uint##bits##_t value, int) {   \
    RECORD(address, bits / 8, Kind::atomic, true, true);                                                   \
    return __atomic_fetch_##name(static_cast<volatile uint##bits##_t*>(address), value, __ATOMIC_SEQ_CST); \
  }

#define ATOMICS(bits)                                                                                    \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile void* address, int) {                         \
    RECORD(address, bits / 8, Kind::atomic, false, false);                                               \
    return __atomic_load_n(static_cast<const volatile uint##bits##_t*>(address), __ATOMIC_SEQ_CST);      \
  }                                                                                                      \
  void __tsan_atomic##bits##_store(volatile void* address, uint##bits##_t value, int) {                  \
    RECORD(address, bits / 8, Kind::atomic, true, true);                                                 \
    __atomic_store_n(static_cast<volatile uint##bits##_t*>(address), value, __ATOMIC_SEQ_CST);           \
  }                                                                                                      \
  uint##bits##_t __tsan_atomic##bits##_exchange(volatile void* address, uint##bits##_t value, int) {     \
    RECORD(address, bits / 8, Kind::atomic, true, true);                                                 \
    return __atomic_exchange_n(static_cast<volatile uint##bits##_t*>(address), value, __ATOMIC_SEQ_CST); \
  }                                                                                                      \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile void* address, void* expected,             \
                                                     uint##bits##_t value, int, int) {                   \
    RECORD(address, bits / 8, Kind::atomic, true, true);                                                 \
    return __atomic_compare_exchange_n(static_cast<volatile uint##bits##_t*>(address),                   \
                                       static_cast<uint##bits##_t*>(expected), value, false,             \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                              \
  }                                                                                                      \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile void* address, void* expected,               \
                                                   uint##bits##_t value, int, int) {                     \
    RECORD(address, bits / 8, Kind::atomic, true, true);                                                 \
    return __atomic_compare_exchange_n(static_cast<volatile uint##bits##_t*>(address),                   \
                                       static_cast<uint##bits##_t*>(expected), value, true,              \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                              \
  }                                                                                                      \
  ATOMIC_UPDATE(bits, add)                                                                               \
  ATOMIC_UPDATE(bits, sub)                                                                               \
  ATOMIC_UPDATE(bits, and)                                                                               \
  ATOMIC_UPDATE(bits, or)                                                                                \
  ATOMIC_UPDATE(bits, xor)                                                                               \
  ATOMIC_UPDATE(bits, nand)

extern "C" {

LOADS_AND_STORES(, 1)
LOADS_AND_STORES(, 2)
LOADS_AND_STORES(, 4)
LOADS_AND_STORES(, 8)
LOADS_AND_STORES(, 16)
LOADS_AND_STORES(unaligned_, 2)
LOADS_AND_STORES(unaligned_, 4)
LOADS_AND_STORES(unaligned_, 8)
LOADS_AND_STORES(unaligned_, 16)
LOADS_AND_STORES(volatile_, 1)
LOADS_AND_STORES(volatile_, 2)
LOADS_AND_STORES(volatile_, 4)
LOADS_AND_STORES(volatile_, 8)
LOADS_AND_STORES(volatile_, 16)

void __tsan_read_range(void* address, size_t bytes) {
  RECORD(address, bytes, Kind::load, false, true);
}
void __tsan_write_range(void* address, size_t bytes) {
  RECORD(address, bytes, Kind::store, true, true);
}

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

void __tsan_atomic_thread_fence(int) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
void __tsan_atomic_signal_fence(int) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

}  // extern "C"
