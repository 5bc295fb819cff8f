// bfloat16 on the CPU: the type and its conversions, for host and device code. Names, bits and rounding are
// those of NVIDIA's header of the same name; what has no branch and no call here is vectorised in loops.
// Arithmetic rounds each result, as there; a kernel that converts to float, computes and rounds once is more
// exact.
#pragma once

#include <bit>
#include <cstdint>

// The upper half of a float: sign, 8 bits of exponent, 7 of fraction.
struct alignas(2) __nv_bfloat16_raw {
  unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
  constexpr operator __nv_bfloat16_raw() const { return {__x}; }
  constexpr __nv_bfloat16(float value);
  constexpr __nv_bfloat16(double value) : __nv_bfloat16(static_cast<float>(value)) {}
  constexpr __nv_bfloat16(int value) : __nv_bfloat16(static_cast<float>(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(uint32_t{__x} << 16); }

 protected:
  unsigned short __x;
};

constexpr unsigned short __bfloat16_as_ushort(const __nv_bfloat16 value) {
  return static_cast<__nv_bfloat16_raw>(value).x;
}

constexpr __nv_bfloat16 __ushort_as_bfloat16(const unsigned short bits) {
  return __nv_bfloat16_raw{bits};
}

constexpr float __bfloat162float(const __nv_bfloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(__bfloat16_as_ushort(value)) << 16);
}

// To the nearest, ties to even; beyond the largest finite value infinity; every NaN becomes 0x7fff.
constexpr __nv_bfloat16 __float2bfloat16_rn(const float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Half of the last place that is kept, less one where that place is even: a tie carries into odd ones only.
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  return __ushort_as_bfloat16(static_cast<unsigned short>(is_nan ? 0x7fff : rounded));
}

constexpr __nv_bfloat16 __float2bfloat16(const float value) {
  return __float2bfloat16_rn(value);
}

constexpr __nv_bfloat16::__nv_bfloat16(const float value)
    : __x(__bfloat16_as_ushort(__float2bfloat16_rn(value))) {}

#define HOSTCUDA_BFLOAT16_OPERATOR(op)                                                \
  constexpr __nv_bfloat16 operator op(const __nv_bfloat16 a, const __nv_bfloat16 b) { \
    return __float2bfloat16_rn(__bfloat162float(a) op __bfloat162float(b));           \
  }                                                                                   \
  constexpr __nv_bfloat16& operator op##=(__nv_bfloat16 & a, const __nv_bfloat16 b) { \
    return a = a op b;                                                                \
  }
HOSTCUDA_BFLOAT16_OPERATOR(+)
HOSTCUDA_BFLOAT16_OPERATOR(-)
HOSTCUDA_BFLOAT16_OPERATOR(*)
HOSTCUDA_BFLOAT16_OPERATOR(/)
#undef HOSTCUDA_BFLOAT16_OPERATOR
