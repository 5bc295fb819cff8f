// Element kernels: every element is computed alone, in float. All pointers are device memory; all functions
// enqueue on `stream` and return at once; n may be 0. Pointers need only the alignment of their type. T is
// float or __nv_bfloat16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

// x[i] = value, rounded to the nearest where T has fewer digits.
template <typename T>
void fill(T* x, float value, int64_t n, cudaStream_t stream);

// y[i] = x[i], rounded to the nearest where To has fewer digits.
template <typename From, typename To>
void cast(const From* x, To* y, int64_t n, cudaStream_t stream);

// destination[i] += source[i]; the addition of every allreduce.
template <typename T>
void add_into(T* destination, const T* source, int64_t n, cudaStream_t stream);

// y[i] = a[i] + b[i]
template <typename T>
void add(const T* a, const T* b, T* y, int64_t n, cudaStream_t stream);

// x[i] *= factor
template <typename T>
void scale(T* x, float factor, int64_t n, cudaStream_t stream);

// y[i] = x[i] * *factor, with the factor in device memory (a gradient that arrives as a scalar).
template <typename T>
void scale_by(const float* x, const float* factor, T* y, int64_t n, cudaStream_t stream);

// y[i] = max(x[i], 0); NaN stays NaN.
template <typename T>
void relu_forward(const T* x, T* y, int64_t n, cudaStream_t stream);

// dx[i] = y[i] > 0 ? dy[i] : 0, from the forward output y.
template <typename T>
void relu_backward(const T* y, const T* dy, T* dx, int64_t n, cudaStream_t stream);

// y[i] = 1 / (1 + exp(-x[i])), without overflow for large |x|.
template <typename T>
void sigmoid_forward(const T* x, T* y, int64_t n, cudaStream_t stream);

// dx[i] = dy[i] * y[i] * (1 - y[i]), from the forward output y.
template <typename T>
void sigmoid_backward(const T* y, const T* dy, T* dx, int64_t n, cudaStream_t stream);

}  // namespace lockstep::kernels
