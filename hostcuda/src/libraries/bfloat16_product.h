// The product of two bfloat16 matrices, summed in float: by oneDNN where the processor multiplies bfloat16,
// through the float product elsewhere.
#pragma once

#include <cuda_bf16.h>

#include <compare>
#include <cstdint>

namespace hostcuda {

// Column-major, as in BLAS: op(A) is m x k, op(B) is k x n, the result m x n.
struct Bfloat16Product {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  int64_t lda, ldb;
  int threads;

  auto operator<=>(const Bfloat16Product&) const = default;
};

// Writes op(A) op(B) into the m * n floats of `result`, on the calling thread and those that it may use.
void multiply(const Bfloat16Product& product, const __nv_bfloat16* a, const __nv_bfloat16* b, float* result);

}  // namespace hostcuda
