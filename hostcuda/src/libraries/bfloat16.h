// Whole arrays of bfloat16 to and from float, for library calls that compute in float.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>

namespace hostcuda {

inline void widen(const __nv_bfloat16* from, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = __bfloat162float(from[i]);
}

inline void narrow(const float* from, __nv_bfloat16* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = __float2bfloat16_rn(from[i]);
}

}  // namespace hostcuda
