// What a worker keeps for itself between library calls, so that it stays in the core's cache: scratch memory
// and zeros. Both grow to what the calls have needed, which is a few MiB, since they work in blocks.
#pragma once

#include <cstdint>

namespace hostcuda {

inline constexpr int kLine = 16;  // floats of a cache line

inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// So many floats, aligned to a cache line; until the next call on this thread.
float* worker_scratch(int64_t floats);

// So many zeros, not to be written; T is float or something smaller whose zero is all zero bits.
const float* worker_zeros(int64_t floats);

template <typename T>
const T* worker_zeros(int64_t count) {
  static_assert(sizeof(T) <= sizeof(float));
  return reinterpret_cast<const T*>(worker_zeros(count));
}

}  // namespace hostcuda
