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

// y[i] = x[i] * *factor, with the factor in device memory (a gradient that arrives as a scalar).
template <typename T>
void scale_by(const float* x, const float* factor, T* y, int64_t n, cudaStream_t stream);

}  // namespace lockstep::kernels
