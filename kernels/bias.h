// Bias over the last dimension: x is [rows, channels] of T, float or
// __nv_bfloat16; the bias and its gradient are float.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

// y[r, c] += bias[c]
template <typename T>
void bias_add(T* y, const float* bias, int64_t rows, int channels, cudaStream_t stream);

// dbias[c] = sum over r of dy[r, c], in a fixed order. rows may be 0: the gradient is then 0.
template <typename T>
void bias_gradient(const T* dy, float* dbias, int64_t rows, int channels, cudaStream_t stream);

}  // namespace lockstep::kernels
