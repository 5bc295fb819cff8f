// Bias over the last dimension: x is [rows, channels].
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

// y[r, c] += bias[c]
void bias_add(float* y, const float* bias, int64_t rows, int channels, cudaStream_t stream);

// dbias[c] = sum over r of dy[r, c], in a fixed order. rows may be 0: the gradient is then 0.
void bias_gradient(const float* dy, float* dbias, int64_t rows, int channels, cudaStream_t stream);

}  // namespace lockstep::kernels
