// Floating-point element types: activations are float or bfloat16, and collectives sum float16, too. A kernel
// over any of them reads into float, computes in float, and rounds once where it writes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace lockstep::kernels {

__host__ __device__ inline float to_float(float value) {
  return value;
}
__host__ __device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__host__ __device__ inline float to_float(__half value) {
  return __half2float(value);
}

// To the nearest value that T has, ties to even.
template <typename T>
__host__ __device__ inline T from_float(float value) {
  return value;
}
template <>
__host__ __device__ inline __nv_bfloat16 from_float(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__host__ __device__ inline __half from_float(float value) {
  return __float2half_rn(value);
}

}  // namespace lockstep::kernels
