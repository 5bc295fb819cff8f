// cuBLAS's matrix products: of floats over dnnl_sgemm, of bfloat16 in bfloat16_product.h. dnnl_sgemm is
// row-major: a column-major matrix is its transpose in row-major order, so C = op(A) op(B) is computed as C'
// = op(B)' op(A)'.
#include <cstdint>
#include <mutex>
#include <set>
#include <tuple>
#include <type_traits>
#include <vector>

#include <hostcuda/launch.h>
#include "hostcuda/src/libraries/bfloat16_product.h"
#include "hostcuda/src/libraries/cublas_handle.h"
#include "hostcuda/src/libraries/onednn.h"
#include "hostcuda/src/libraries/onednn_operands.h"
#include "hostcuda/src/libraries/onednn_rehearsal.h"
#include "hostcuda/src/runtime/tally.h"
#include "hostcuda/src/runtime/worker_scratch.h"

namespace {

// One product, or `batches` of them `stride_*` elements apart.
struct Product {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  const void *a, *b;
  void* c;
  int64_t lda, ldb, ldc;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  int64_t batches = 1;
  bool bfloat16 = false;    // a and b, else float
  bool bfloat16_c = false;  // float else
  bool tf32 = false;        // what a GPU would multiply floats in
  // Host pointers are read at the call, device pointers when it runs.
  bool scalars_on_device;
  const float *alpha_pointer, *beta_pointer;
  float alpha = 0, beta = 0;

  int64_t a_rows() const { return transpose_a ? k : m; }
  int64_t a_columns() const { return transpose_a ? m : k; }
  int64_t b_rows() const { return transpose_b ? n : k; }
  int64_t b_columns() const { return transpose_b ? k : n; }
};

float load(float value) {
  return value;
}
float load(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
void store(float value, float& to) {
  to = value;
}
void store(float value, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(value);
}

// What BLAS does without a product to add: c = beta c, where 0 clears whatever was there, NaN included.
template <typename T>
void scale(const Product& p, T* c) {
  for (int64_t column = 0; column < p.n; ++column)
    for (int64_t row = 0; row < p.m; ++row) {
      T& element = c[column * p.ldc + row];
      store(p.beta == 0 ? 0 : p.beta * load(element), element);
    }
}

// c = alpha product + beta c, computed in float and rounded once.
template <typename T>
void blend(const Product& p, const float* product, T* c) {
  for (int64_t column = 0; column < p.n; ++column) {
    const float* const from = product + column * p.m;
    T* const to = c + column * p.ldc;
    if (p.beta == 0)
      for (int64_t row = 0; row < p.m; ++row) store(p.alpha * from[row], to[row]);
    else
      for (int64_t row = 0; row < p.m; ++row) store(p.alpha * from[row] + p.beta * load(to[row]), to[row]);
  }
}

// The matrices of one product of the batch.
template <typename T, typename TC>
void multiply(const Product& p, const T* a, const T* b, TC* c) {
  using hostcuda::onednn::check_matrix;
  check_matrix(c, p.m, p.n, p.ldc, sizeof(TC), true);
  if (p.k == 0 || p.alpha == 0) return scale(p, c);
  check_matrix(a, p.a_rows(), p.a_columns(), p.lda, sizeof(T), false);
  check_matrix(b, p.b_rows(), p.b_columns(), p.ldb, sizeof(T), false);
  if constexpr (std::is_same_v<T, float>) {
    const hostcuda::onednn::ThreadScope threads(hostcuda::onednn::call_threads());
    dnnl_sgemm(p.transpose_b ? 'T' : 'N', p.transpose_a ? 'T' : 'N', p.n, p.m, p.k, p.alpha, b, p.ldb, a,
               p.lda, p.beta, c, p.ldc);
  } else {
    float* const product = hostcuda::worker_scratch(p.m * p.n);
    hostcuda::multiply(
        {p.transpose_a, p.transpose_b, p.m, p.n, p.k, p.lda, p.ldb, hostcuda::onednn::call_threads()}, a, b,
        product);
    blend(p, product, c);
  }
}

template <typename T, typename TC>
void multiply_all(const Product& p) {
  for (int64_t i = 0; i < p.batches; ++i)
    multiply(p, static_cast<const T*>(p.a) + i * p.stride_a, static_cast<const T*>(p.b) + i * p.stride_b,
             static_cast<TC*>(p.c) + i * p.stride_c);
}

void multiply_all(const Product& p) {
  if (!p.bfloat16) return multiply_all<float, float>(p);
  p.bfloat16_c ? multiply_all<__nv_bfloat16, __nv_bfloat16>(p) : multiply_all<__nv_bfloat16, float>(p);
}

// Runs the product of zeros once, unless one of its shape has run before.
void rehearse_shape(Product p) {
  using Shape = std::tuple<bool, bool, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool>;
  // A float product has one code for all leading dimensions.
  const int64_t lda = p.bfloat16 ? p.lda : 0, ldb = p.bfloat16 ? p.ldb : 0;
  static std::mutex mutex;
  static auto& known = *new std::set<Shape>;
  const std::lock_guard lock(mutex);
  if (!known.insert({p.transpose_a, p.transpose_b, p.m, p.n, p.k, lda, ldb, p.beta == 0, p.bfloat16}).second)
    return;
  const std::vector<float> a(static_cast<size_t>(p.lda * p.a_columns())),
      b(static_cast<size_t>(p.ldb * p.b_columns()));
  std::vector<float> c(static_cast<size_t>(p.m * p.n));
  p.a = a.data(), p.b = b.data(), p.c = c.data();
  p.ldc = p.m;
  p.alpha = 1;
  p.batches = 1;
  hostcuda::onednn::rehearse([&p] { multiply_all(p); });
}

void describe_to_forecast(const Product& p) {
  hostcuda::Operation operation;
  operation.kind = hostcuda::Operation::Kind::product;
  operation.arithmetics = p.bfloat16 ? hostcuda::Arithmetics::bf16
                          : p.tf32   ? hostcuda::Arithmetics::tf32
                                     : hostcuda::Arithmetics::fp32;
  operation.rows = static_cast<double>(p.m);
  operation.columns = static_cast<double>(p.n);
  operation.depth = static_cast<double>(p.k);
  operation.count = static_cast<double>(p.batches);
  const double in = p.bfloat16 ? 2 : 4, out = p.bfloat16_c ? 2 : 4;
  operation.bytes = operation.count * (in * operation.depth * (operation.rows + operation.columns) +
                                       out * operation.rows * operation.columns);
  hostcuda::describe_call(operation);
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
  p.tf32 = p.tf32 || handle->math == CUBLAS_TF32_TENSOR_OP_MATH;
  describe_to_forecast(p);
  const auto call = [p]() mutable {
    if (p.scalars_on_device) {
      p.alpha = *p.alpha_pointer;
      p.beta = *p.beta_pointer;
    }
    multiply_all(p);
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
  // Reduced compute types are for float operands alone (cuBLAS, "cublasGemmEx", supported combinations).
  const bool is_full = computeType == CUBLAS_COMPUTE_32F || computeType == CUBLAS_COMPUTE_32F_PEDANTIC;
  const bool is_reduced = computeType == CUBLAS_COMPUTE_32F_FAST_16F ||
                          computeType == CUBLAS_COMPUTE_32F_FAST_16BF ||
                          computeType == CUBLAS_COMPUTE_32F_FAST_TF32;
  const bool are_floats = Atype == CUDA_R_32F && Btype == CUDA_R_32F && Ctype == CUDA_R_32F;
  const bool are_bfloat16 =
      Atype == CUDA_R_16BF && Btype == CUDA_R_16BF && (Ctype == CUDA_R_16BF || Ctype == CUDA_R_32F);
  if (!(is_full && (are_floats || are_bfloat16)) && !(is_reduced && are_floats))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  Product p{};
  p.m = m, p.n = n, p.k = k;
  p.a = A, p.b = B, p.c = C;
  p.lda = lda, p.ldb = ldb, p.ldc = ldc;
  p.batches = 1;
  p.bfloat16 = are_bfloat16;
  p.bfloat16_c = Ctype == CUDA_R_16BF;
  p.tf32 = computeType == CUBLAS_COMPUTE_32F_FAST_TF32;
  p.alpha_pointer = static_cast<const float*>(alpha), p.beta_pointer = static_cast<const float*>(beta);
  return enqueue("cublasGemmEx", handle, transa, transb, p);
}

}  // extern "C"
