// Neighbouring values that one thread of a GPU moves at once: 16 bytes of them, 4 floats or 8 bfloat16. They
// are computed with as floats. A kernel that is written over them needs addresses that are multiples of 16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/float_types.h"

namespace lockstep::kernels {

template <int kCount>
struct Pack {
  float value[kCount];

  __host__ __device__ float& operator[](int i) { return value[i]; }
  __host__ __device__ float operator[](int i) const { return value[i]; }

#define LOCKSTEP_PACK_OPERATOR(op)                                            \
  friend __host__ __device__ Pack operator op(const Pack& a, const Pack& b) { \
    Pack c;                                                                   \
    for (int i = 0; i < kCount; ++i) c[i] = a[i] op b[i];                     \
    return c;                                                                 \
  }                                                                           \
  friend __host__ __device__ Pack operator op(const Pack& a, float b) {       \
    Pack c;                                                                   \
    for (int i = 0; i < kCount; ++i) c[i] = a[i] op b;                        \
    return c;                                                                 \
  }
  LOCKSTEP_PACK_OPERATOR(+)
  LOCKSTEP_PACK_OPERATOR(-)
  LOCKSTEP_PACK_OPERATOR(*)
#undef LOCKSTEP_PACK_OPERATOR
  __host__ __device__ Pack& operator+=(const Pack& other) { return *this = *this + other; }
  __host__ __device__ Pack& operator-=(const Pack& other) { return *this = *this - other; }
};

// The values of T that 16 bytes hold.
template <typename T>
inline constexpr int kPackOf = static_cast<int>(16 / sizeof(T));

// True where a thread may move 16 bytes at once from and to all of these; null is no address.
template <typename... Pointers>
bool are_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

namespace detail {
__host__ __device__ inline unsigned bits_of(__nv_bfloat16 value) {
  unsigned short bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
__host__ __device__ inline float float_of_bits(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace detail

template <int kCount>
__host__ __device__ Pack<kCount> load_pack(const float* p) {
  static_assert(kCount % 4 == 0);
  Pack<kCount> pack;
  for (int i = 0; i < kCount; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(p + i);
    pack[i] = four.x, pack[i + 1] = four.y, pack[i + 2] = four.z, pack[i + 3] = four.w;
  }
  return pack;
}

template <int kCount>
__host__ __device__ void store_pack(float* p, const Pack<kCount>& pack) {
  for (int i = 0; i < kCount; i += 4)
    *reinterpret_cast<float4*>(p + i) = make_float4(pack[i], pack[i + 1], pack[i + 2], pack[i + 3]);
}

template <int kCount>
__host__ __device__ Pack<kCount> load_pack(const __nv_bfloat16* p) {
  static_assert(kCount == 8);
  const uint4 words = *reinterpret_cast<const uint4*>(p);
  const unsigned word[4] = {words.x, words.y, words.z, words.w};
  Pack<kCount> pack;
  for (int i = 0; i < 4; ++i) {  // a bfloat16 is the upper half of a float
    pack[2 * i] = detail::float_of_bits(word[i] << 16);
    pack[2 * i + 1] = detail::float_of_bits(word[i] & 0xffff0000u);
  }
  return pack;
}

template <int kCount>
__host__ __device__ void store_pack(__nv_bfloat16* p, const Pack<kCount>& pack) {
  unsigned word[4];
  for (int i = 0; i < 4; ++i)
    word[i] = detail::bits_of(from_float<__nv_bfloat16>(pack[2 * i])) |
              detail::bits_of(from_float<__nv_bfloat16>(pack[2 * i + 1])) << 16;
  *reinterpret_cast<uint4*>(p) = make_uint4(word[0], word[1], word[2], word[3]);
}

}  // namespace lockstep::kernels
