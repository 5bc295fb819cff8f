// Element kernels: every element is computed alone. All pointers are device memory; all functions enqueue on
// `stream` and return at once; n may be 0. Pointers need only the alignment of their type.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

// x[i] = value
void fill(float* x, float value, int64_t n, cudaStream_t stream);

// destination[i] += source[i]; the addition of every allreduce.
void add_into(float* destination, const float* source, int64_t n, cudaStream_t stream);

// y[i] = a[i] + b[i]
void add(const float* a, const float* b, float* y, int64_t n, cudaStream_t stream);

// x[i] *= factor
void scale(float* x, float factor, int64_t n, cudaStream_t stream);

// y[i] = x[i] * *factor, with the factor in device memory (a gradient that arrives as a scalar).
void scale_by(const float* x, const float* factor, float* y, int64_t n, cudaStream_t stream);

// y[i] = max(x[i], 0); NaN stays NaN.
void relu_forward(const float* x, float* y, int64_t n, cudaStream_t stream);

// dx[i] = y[i] > 0 ? dy[i] : 0, from the forward output y.
void relu_backward(const float* y, const float* dy, float* dx, int64_t n, cudaStream_t stream);

// y[i] = 1 / (1 + exp(-x[i])), without overflow for large |x|.
void sigmoid_forward(const float* x, float* y, int64_t n, cudaStream_t stream);

// dx[i] = dy[i] * y[i] * (1 - y[i]), from the forward output y.
void sigmoid_backward(const float* y, const float* dy, float* dx, int64_t n, cudaStream_t stream);

}  // namespace lockstep::kernels
