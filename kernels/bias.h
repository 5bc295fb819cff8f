// Bias over the last dimension: x is [rows, channels] of T, float or
// __nv_bfloat16; the bias and its gradient are float.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/scratch.h"

namespace lockstep::kernels {

// y[r, c] += bias[c]
template <typename T>
void bias_add(T* y, const float* bias, int64_t rows, int channels, cudaStream_t stream);

// dbias[c] = sum over r of dy[r, c], in an order that depends on the sizes alone. rows may be 0: the gradient
// is then 0.
template <typename T>
void bias_gradient(const T* dy, float* dbias, int64_t rows, int channels, const SumScratch& scratch,
                   cudaStream_t stream);
size_t bias_gradient_workspace_bytes(int64_t rows, int channels);

}  // namespace lockstep::kernels
