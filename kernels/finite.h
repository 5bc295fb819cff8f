// What is no finite number: NaN, and both infinities. For checks that look now and then, not at every step.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

// *count += how many of x[0..n) are NaN or infinite.
void count_not_finite(const float* x, int64_t n, int32_t* count, cudaStream_t stream);

// *row = the smallest of *row and first_row + r over all rows r of logits [rows, classes] that have no
// largest value to choose a class by: one is NaN, or the largest is infinite.
template <typename T>
void first_row_without_largest(const T* logits, int64_t rows, int classes, int32_t first_row, int32_t* row,
                               cudaStream_t stream);

}  // namespace lockstep::kernels
