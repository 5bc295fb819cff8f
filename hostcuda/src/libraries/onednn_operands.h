// oneDNN is not compiled with the sanitizers and does not say which operand it faulted on. So where faults
// are looked for, a call's operands are touched here first: an overrun or a race is then seen in our own
// code, before oneDNN runs. In an ordinary run all of this is one test of a flag.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hostcuda/launch.h>

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_read_range(void* address, unsigned long size);
extern "C" void __tsan_write_range(void* address, unsigned long size);
#endif

namespace hostcuda::onednn {

// One byte a cache line and the last one.
inline void touch(const void* address, size_t bytes) {
  const auto* byte = static_cast<const volatile unsigned char*>(address);
  for (size_t i = 0; i < bytes; i += 64) (void)byte[i];
  if (bytes > 0) (void)byte[bytes - 1];
}

inline bool operands_are_checked() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return checked_mode();
#endif
}

inline void check_read(const void* address, size_t bytes) {
  if (!operands_are_checked()) return;
  touch(address, bytes);
#if defined(__SANITIZE_THREAD__)
  __tsan_read_range(const_cast<void*>(address), bytes);
#endif
}

inline void check_write(void* address, size_t bytes) {
  if (!operands_are_checked()) return;
#if defined(__SANITIZE_THREAD__)
  __tsan_write_range(address, bytes);
#else
  touch(address, bytes);
#endif
}

// A column-major matrix whose columns are `leading` floats apart.
inline void check_matrix(const void* matrix, int64_t rows, int64_t columns, int64_t leading, size_t element,
                         bool written) {
  if (!operands_are_checked()) return;
  for (int64_t column = 0; column < columns; ++column) {
    const char* start = static_cast<const char*>(matrix) + static_cast<size_t>(column * leading) * element;
    const size_t bytes = static_cast<size_t>(rows) * element;
    written ? check_write(const_cast<char*>(start), bytes) : check_read(start, bytes);
  }
}

}  // namespace hostcuda::onednn
