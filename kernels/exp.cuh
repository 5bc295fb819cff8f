// exp(x) in float32 as a polynomial without branches, so that the loops that use it vectorise on a CPU; a GPU
// compiles the same source. exp(x) = 2^n exp(r) with n = round(x / ln 2), |r| <= ln(2) / 2; the coefficients
// are those of Cephes' expf (Moshier, 1989).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

namespace detail {
// 2^n for n in [-126, 127]; other n give some float, never undefined behaviour.
__host__ __device__ inline float power_of_two(uint32_t n) {
  return __builtin_bit_cast(float, (n + 127u) << 23);
}
}  // namespace detail

// Within 2 units in the last place of the exact value for every float, denormal results included; exact 0
// below -104, +inf above 88.73, NaN for NaN.
__host__ __device__ inline float exp_polynomial(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the mantissa: no conversion, which a NaN
  // would make undefined.
  constexpr float kShift = 12582912.0f;
  const float shifted = x * 1.44269504f + kShift;
  const float n = shifted - kShift;
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) - __builtin_bit_cast(uint32_t, kShift);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts: the first is exact
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // In two steps, because 2^n itself is no normal float where the result is denormal or infinite. The shift
  // is arithmetic by hand: n + 256 is never negative here.
  const uint32_t half = ((exponent + 256u) >> 1) - 128u;
  return p * detail::power_of_two(half) * detail::power_of_two(exponent - half);
}

}  // namespace lockstep::kernels
