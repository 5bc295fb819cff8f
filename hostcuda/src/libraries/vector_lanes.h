// The vector type of our own convolutions: as wide as the instruction set's registers, never wider,
// since the compiler then splits it through memory (vector_size(64) for AVX2 was 31 times slower).
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <utility>

namespace hostcuda {

// kRows x kVectors vectors of sums stay in registers in a matrix product (panels.h), with kVectors more for
// an operand.
inline constexpr int kRows = 6;
#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kVectors = 4;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
inline constexpr int kVectors = 2;
#else
inline constexpr int kLanes = 4;
inline constexpr int kVectors = 2;
#endif
inline constexpr int kPanel = kVectors * kLanes;  // the columns that a product makes at a time

typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef unsigned LaneBits __attribute__((vector_size(kLanes * sizeof(unsigned))));
typedef unsigned short LaneHalves __attribute__((vector_size(kLanes * sizeof(unsigned short))));

inline Lanes load(const float* p) {
  Lanes value;
  __builtin_memcpy(&value, p, sizeof(value));
  return value;
}

inline void store(float* p, Lanes value) {
  __builtin_memcpy(p, &value, sizeof(value));
}

// bfloat16 in memory, float in registers: __bfloat162float and __float2bfloat16_rn, lane by lane.
inline Lanes load(const __nv_bfloat16* p) {
  LaneHalves halves;
  __builtin_memcpy(&halves, p, sizeof(halves));
  return reinterpret_cast<Lanes>(__builtin_convertvector(halves, LaneBits) << 16);
}

inline void store(__nv_bfloat16* p, Lanes value) {
  const LaneBits bits = reinterpret_cast<LaneBits>(value);
  const LaneBits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const LaneHalves halves =
      __builtin_convertvector((bits & 0x7fffffff) > 0x7f800000 ? LaneBits{} + 0x7fff : rounded, LaneHalves);
  __builtin_memcpy(static_cast<void*>(p), &halves, sizeof(halves));
}

// Exchanges the off-diagonal blocks of kBlock x kBlock values of two rows that are kBlock apart.
template <int kBlock, int... kIndex>
inline void exchange(Lanes& a, Lanes& b, std::integer_sequence<int, kIndex...>) {
  const Lanes upper =
      __builtin_shufflevector(a, b, ((kIndex & kBlock) != 0 ? kLanes + (kIndex ^ kBlock) : kIndex)...);
  b = __builtin_shufflevector(a, b, ((kIndex & kBlock) != 0 ? kLanes + kIndex : (kIndex ^ kBlock))...);
  a = upper;
}

// rows[i] lane j becomes rows[j] lane i: blocks of half the size are exchanged, then those inside them.
template <int kBlock = kLanes / 2>
inline void transpose(Lanes (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if ((i & kBlock) == 0)
      exchange<kBlock>(rows[i], rows[i + kBlock], std::make_integer_sequence<int, kLanes>());
  if constexpr (kBlock > 1) transpose<kBlock / 2>(rows);
}

}  // namespace hostcuda
