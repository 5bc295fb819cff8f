// A matrix product of the cuBLAS tests: its sizes, and plain loops in double that say what comes out.
#pragma once

#include <cublas_v2.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/check.h"
#include "tests/hostcuda/library_test.h"

class Handle {
 public:
  explicit Handle(cublasMath_t math = CUBLAS_PEDANTIC_MATH) {  // no TF32
    LOCKSTEP_CUBLAS(cublasCreate(&handle_));
    LOCKSTEP_CUBLAS(cublasSetMathMode(handle_, math));
  }
  ~Handle() { cublasDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator cublasHandle_t() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

struct Case {
  bool transpose_a, transpose_b;
  int m, n, k;
  float alpha = 1, beta = 0;
  int lda_extra = 0, ldb_extra = 0, ldc_extra = 0;
  int batches = 1;

  cublasOperation_t operation_a() const { return transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N; }
  cublasOperation_t operation_b() const { return transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N; }
  int lda() const { return std::max(1, transpose_a ? k : m) + lda_extra; }
  int ldb() const { return std::max(1, transpose_b ? n : k) + ldb_extra; }
  int ldc() const { return std::max(1, m) + ldc_extra; }
  size_t a_size() const { return static_cast<size_t>(lda()) * (transpose_a ? m : k); }
  size_t b_size() const { return static_cast<size_t>(ldb()) * (transpose_b ? k : n); }
  size_t c_size() const { return static_cast<size_t>(ldc()) * n; }
};

// The oracle: column-major, as BLAS defines it. Elements between a column's end and ldc stay as they are.
inline std::vector<Sum> multiply(const Case& t, const float* a, const float* b, const float* c) {
  std::vector<Sum> result(t.c_size());
  for (size_t i = 0; i < result.size(); ++i) result[i].add(c[i]);
  for (int column = 0; column < t.n; ++column)
    for (int row = 0; row < t.m; ++row) {
      const size_t index = static_cast<size_t>(column) * t.ldc() + row;
      Sum sum;
      for (int i = 0; i < t.k; ++i) {
        const double left = t.transpose_a ? a[row * t.lda() + i] : a[i * t.lda() + row];
        const double right = t.transpose_b ? b[i * t.ldb() + column] : b[column * t.ldb() + i];
        sum.add(static_cast<double>(t.alpha) * left * right);
      }
      if (t.beta != 0) sum.add(static_cast<double>(t.beta) * c[index]);
      result[index] = sum;
    }
  return result;
}
