// cuBLAS's matrix products over dnnl_sgemm, which is row-major: a column-major matrix is its transpose in
// row-major order, so C = op(A) op(B) is computed as C' = op(B)' op(A)'.
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "cublas_handle.h"
#include "hostcuda/launch.h"
#include "onednn.h"
#include "onednn_operands.h"
#include "onednn_rehearsal.h"

namespace {

// One product, or `batches` of them `stride_*` elements apart.
struct Product {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  const void *a, *b;
  float* c;
  int64_t lda, ldb, ldc;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  int64_t batches = 1;
  bool bfloat16 = false;  // a and b; c is float always
  // Host pointers are read at the call, device pointers when it runs.
  bool scalars_on_device;
  const float *alpha_pointer, *beta_pointer;
  float alpha = 0, beta = 0;

  int64_t a_rows() const { return transpose_a ? k : m; }
  int64_t a_columns() const { return transpose_a ? m : k; }
  int64_t b_rows() const { return transpose_b ? n : k; }
  int64_t b_columns() const { return transpose_b ? k : n; }
};

// What BLAS does without a product to add: c = beta c, where 0 clears whatever was there, NaN included.
void scale(const Product& p, float* c) {
  for (int64_t column = 0; column < p.n; ++column)
    for (int64_t row = 0; row < p.m; ++row) {
      float& element = c[column * p.ldc + row];
      element = p.beta == 0 ? 0 : p.beta * element;
    }
}

// A bfloat16 is the upper half of a float.
const float* widen(const uint16_t* matrix, int64_t rows, int64_t columns, int64_t leading,
                   std::vector<float>& wide) {
  const size_t count = static_cast<size_t>(rows * columns);
  if (wide.size() < count) wide.resize(count);
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row) {
      const uint32_t bits = static_cast<uint32_t>(matrix[column * leading + row]) << 16;
      std::memcpy(&wide[static_cast<size_t>(column * rows + row)], &bits, sizeof bits);
    }
  return wide.data();
}

void multiply(const Product& p, int64_t batch) {
  using hostcuda::onednn::check_matrix;
  const size_t element = p.bfloat16 ? sizeof(uint16_t) : sizeof(float);
  const char* a_bytes = static_cast<const char*>(p.a) + batch * p.stride_a * static_cast<int64_t>(element);
  const char* b_bytes = static_cast<const char*>(p.b) + batch * p.stride_b * static_cast<int64_t>(element);
  float* c = p.c + batch * p.stride_c;
  check_matrix(c, p.m, p.n, p.ldc, sizeof(float), true);
  if (p.k == 0 || p.alpha == 0) return scale(p, c);
  check_matrix(a_bytes, p.a_rows(), p.a_columns(), p.lda, element, false);
  check_matrix(b_bytes, p.b_rows(), p.b_columns(), p.ldb, element, false);
  const float* a = reinterpret_cast<const float*>(a_bytes);
  const float* b = reinterpret_cast<const float*>(b_bytes);
  int64_t lda = p.lda, ldb = p.ldb;
  if (p.bfloat16) {
    thread_local std::vector<float> wide_a, wide_b;
    a = widen(reinterpret_cast<const uint16_t*>(a_bytes), p.a_rows(), p.a_columns(), p.lda, wide_a);
    b = widen(reinterpret_cast<const uint16_t*>(b_bytes), p.b_rows(), p.b_columns(), p.ldb, wide_b);
    lda = p.a_rows();
    ldb = p.b_rows();
  }
  dnnl_sgemm(p.transpose_b ? 'T' : 'N', p.transpose_a ? 'T' : 'N', p.n, p.m, p.k, p.alpha, b, ldb, a, lda,
             p.beta, c, p.ldc);
}

// Runs the product of zeros once, unless one of its shape has run before.
void rehearse_shape(Product p) {
  using Shape = std::tuple<bool, bool, int64_t, int64_t, int64_t, bool>;
  static std::mutex mutex;
  static auto& known = *new std::set<Shape>;
  const std::lock_guard lock(mutex);
  if (!known.insert({p.transpose_a, p.transpose_b, p.m, p.n, p.k, p.beta == 0}).second) return;
  const std::vector<float> a(static_cast<size_t>(p.m * p.k)), b(static_cast<size_t>(p.k * p.n));
  std::vector<float> c(static_cast<size_t>(p.m * p.n));
  p.a = a.data(), p.b = b.data(), p.c = c.data();
  p.lda = p.a_rows(), p.ldb = p.b_rows(), p.ldc = p.m;
  p.bfloat16 = false;
  p.alpha = 1;
  hostcuda::onednn::rehearse([&p] {
    const hostcuda::onednn::ThreadScope threads(hostcuda::onednn::call_threads());
    multiply(p, 0);
  });
}

bool is_operation(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

cublasStatus_t enqueue(const char* name, cublasHandle_t handle, cublasOperation_t transa,
                       cublasOperation_t transb, Product p) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!is_operation(transa) || !is_operation(transb)) return CUBLAS_STATUS_INVALID_VALUE;
  p.transpose_a = transa != CUBLAS_OP_N;
  p.transpose_b = transb != CUBLAS_OP_N;
  const auto at_least_one = [](int64_t rows) { return rows > 1 ? rows : 1; };
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.batches < 0 || p.lda < at_least_one(p.a_rows()) ||
      p.ldb < at_least_one(p.b_rows()) || p.ldc < at_least_one(p.m))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.m == 0 || p.n == 0 || p.batches == 0) return CUBLAS_STATUS_SUCCESS;
  if (p.alpha_pointer == nullptr || p.beta_pointer == nullptr || p.c == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  p.scalars_on_device = handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  if (!p.scalars_on_device) {
    p.alpha = *p.alpha_pointer;
    p.beta = *p.beta_pointer;
  }
  rehearse_shape(p);
  const auto call = [p]() mutable {
    if (p.scalars_on_device) {
      p.alpha = *p.alpha_pointer;
      p.beta = *p.beta_pointer;
    }
    const hostcuda::onednn::ThreadScope threads(hostcuda::onednn::call_threads());
    for (int64_t batch = 0; batch < p.batches; ++batch) multiply(p, batch);
  };
  return hostcuda::enqueue_call(name, call, handle->stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                           : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

extern "C" {

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                           int n, int k, const float* alpha, const float* A, int lda, const float* B, int ldb,
                           const float* beta, float* C, int ldc) {
  Product p{};
  p.m = m, p.n = n, p.k = k;
  p.a = A, p.b = B, p.c = C;
  p.lda = lda, p.ldb = ldb, p.ldc = ldc;
  p.batches = 1;
  p.alpha_pointer = alpha, p.beta_pointer = beta;
  return enqueue("cublasSgemm", handle, transa, transb, p);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k, const float* alpha,
                                         const float* A, int lda, long long int strideA, const float* B,
                                         int ldb, long long int strideB, const float* beta, float* C, int ldc,
                                         long long int strideC, int batchCount) {
  Product p{};
  p.m = m, p.n = n, p.k = k;
  p.a = A, p.b = B, p.c = C;
  p.lda = lda, p.ldb = ldb, p.ldc = ldc;
  p.stride_a = strideA, p.stride_b = strideB, p.stride_c = strideC;
  p.batches = batchCount;
  p.alpha_pointer = alpha, p.beta_pointer = beta;
  return enqueue("cublasSgemmStridedBatched", handle, transa, transb, p);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                            int n, int k, const void* alpha, const void* A, cudaDataType Atype, int lda,
                            const void* B, cudaDataType Btype, int ldb, const void* beta, void* C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType, cublasGemmAlgo_t) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool float_compute =
      computeType == CUBLAS_COMPUTE_32F || computeType == CUBLAS_COMPUTE_32F_PEDANTIC ||
      computeType == CUBLAS_COMPUTE_32F_FAST_16F || computeType == CUBLAS_COMPUTE_32F_FAST_16BF ||
      computeType == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (!float_compute || Atype != Btype || (Atype != CUDA_R_32F && Atype != CUDA_R_16BF) ||
      Ctype != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  Product p{};
  p.m = m, p.n = n, p.k = k;
  p.a = A, p.b = B, p.c = static_cast<float*>(C);
  p.lda = lda, p.ldb = ldb, p.ldc = ldc;
  p.batches = 1;
  p.bfloat16 = Atype == CUDA_R_16BF;
  p.alpha_pointer = static_cast<const float*>(alpha), p.beta_pointer = static_cast<const float*>(beta);
  return enqueue("cublasGemmEx", handle, transa, transb, p);
}

}  // extern "C"
