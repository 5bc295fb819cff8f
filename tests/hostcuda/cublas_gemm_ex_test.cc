// cublasGemmEx with bfloat16 and TF32 against plain loops in double. Written against the CUDA API alone, so
// that the same tests hold for NVIDIA's libraries on a GPU.
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "tests/hostcuda/library_test.h"
#include "tests/hostcuda/product_case.h"

namespace {

template <typename T>
constexpr cudaDataType kType = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;

std::vector<float> converted(const std::vector<float>& values, float) {
  return values;
}
std::vector<__nv_bfloat16> converted(const std::vector<float>& values, __nv_bfloat16) {
  return to_bfloat16(values);
}
const std::vector<float>& to_floats(const std::vector<float>& values) {
  return values;
}
using ::to_floats;

template <typename T, typename TC>
cublasStatus_t gemm(cublasHandle_t handle, const Case& t, const T* a, const T* b, TC* c,
                    cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
  return cublasGemmEx(handle, t.operation_a(), t.operation_b(), t.m, t.n, t.k, &t.alpha, a, kType<T>, t.lda(),
                      b, kType<T>, t.ldb(), &t.beta, c, kType<TC>, t.ldc(), compute, CUBLAS_GEMM_DEFAULT);
}

// Elements of C that a product with beta = 0 must not look at are NaN. Operands are drawn from [low, 1).
template <typename T, typename TC>
void check_gemm(const Case& t, unsigned seed, float low = -1) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", op(A) " << t.transpose_a << ", op(B) "
                                  << t.transpose_b << ", " << t.m << " x " << t.n << " x " << t.k
                                  << ", alpha " << t.alpha << ", beta " << t.beta << ", ldc " << t.ldc()
                                  << ", C " << kType<TC>);
  std::mt19937 generator(seed);
  const std::vector<T> a = converted(random_floats(t.a_size(), generator, low), T{});
  const std::vector<T> b = converted(random_floats(t.b_size(), generator, low), T{});
  std::vector<TC> c = converted(random_floats(t.c_size(), generator), TC{});
  const TC nan = converted(nans(1), TC{})[0];
  if (t.beta == 0)
    for (int column = 0; column < t.n; ++column)
      for (int row = 0; row < t.m; ++row) c[static_cast<size_t>(column) * t.ldc() + row] = nan;
  const DeviceArray<T> device_a(a), device_b(b);
  const DeviceArray<TC> device_c(c);
  const Handle handle;
  LOCKSTEP_CUBLAS(gemm(handle, t, device_a.get(), device_b.get(), device_c.get()));
  expect_close(device_c.host(), multiply(t, to_floats(a).data(), to_floats(b).data(), to_floats(c).data()));
}

TEST(CublasGemmEx, MultipliesBfloat16InAllFourTranspositionsAtOddSizes) {
  unsigned seed = 800;
  const int sizes[][3] = {{1, 1, 1},    {1, 7, 3},    {5, 1, 9},    {3, 5, 1},
                          {10, 64, 84}, {31, 33, 32}, {65, 17, 300}};
  for (const auto& size : sizes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const Case t{transpose_a, transpose_b, size[0], size[1], size[2]};
        check_gemm<__nv_bfloat16, __nv_bfloat16>(t, seed++);
        check_gemm<__nv_bfloat16, float>(t, seed++);
      }
}

TEST(CublasGemmEx, HonoursLeadingDimensionsAlphaAndBeta) {
  unsigned seed = 900;
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const float alpha : {1.0f, -0.5f, 0.0f})
        for (const float beta : {0.0f, 1.0f, 0.75f}) {
          const Case t{transpose_a, transpose_b, 19, 23, 29, alpha, beta, 3, 5, 7};
          check_gemm<__nv_bfloat16, __nv_bfloat16>(t, seed++);
          check_gemm<__nv_bfloat16, float>(t, seed++);
          check_gemm<float, float>(t, seed++);
        }
}

TEST(CublasGemmEx, WithoutProductsScalesC) {
  for (const float beta : {0.0f, 1.0f, -2.0f})
    check_gemm<__nv_bfloat16, __nv_bfloat16>({false, false, 4, 5, 0, 1, beta, 0, 0, 2}, 1000);
}

// Thousands of positive terms: a sum kept in bfloat16 would stop growing at the first hundreds.
TEST(CublasGemmEx, SumsBfloat16InFloat) {
  check_gemm<__nv_bfloat16, __nv_bfloat16>({true, false, 9, 16, 5000}, 1100, 0.5f);
  check_gemm<__nv_bfloat16, float>({true, false, 9, 16, 5000}, 1101, 0.5f);
}

TEST(CublasGemmEx, RepeatsBitForBit) {
  SCOPED_TRACE("seed 1200");
  std::mt19937 generator(1200);
  const Case t{false, true, 96, 120, 400};
  const DeviceArray<__nv_bfloat16> a(to_bfloat16(random_floats(t.a_size(), generator))),
      b(to_bfloat16(random_floats(t.b_size(), generator)));
  const DeviceArray<float> c(nans(t.c_size()));
  const Handle handle;
  std::vector<float> first;
  for (int repeat = 0; repeat < 5; ++repeat) {
    LOCKSTEP_CUBLAS(gemm(handle, t, a.get(), b.get(), c.get()));
    const std::vector<float> got = c.host();
    if (repeat == 0) first = got;
    ASSERT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)), 0) << "repeat " << repeat;
  }
}

// By the handle's mode, and by the compute type. Both operands may be cut to 10 bits.
TEST(CublasGemmEx, Tf32IsAcceptedAndKeepsTenBitsAtLeast) {
  SCOPED_TRACE("seed 1300");
  std::mt19937 generator(1300);
  const Case t{false, true, 33, 20, 70};
  const std::vector<float> a = random_floats(t.a_size(), generator), b = random_floats(t.b_size(), generator);
  const DeviceArray<float> device_a(a), device_b(b), c(nans(t.c_size()));
  const std::vector<Sum> wanted = multiply(t, a.data(), b.data(), nans(t.c_size()).data());
  const auto expect_tf32 = [&] {
    const std::vector<float> got = c.host();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i].value, wanted[i].tolerance() + wanted[i].magnitude * 0x2p-10) << i;
    LOCKSTEP_CUDA(cudaMemset(c.get(), 0xff, got.size() * sizeof(float)));
  };
  const Handle tf32(CUBLAS_TF32_TENSOR_OP_MATH), full(CUBLAS_DEFAULT_MATH);
  LOCKSTEP_CUBLAS(gemm(tf32, t, device_a.get(), device_b.get(), c.get()));
  expect_tf32();
  LOCKSTEP_CUBLAS(gemm(full, t, device_a.get(), device_b.get(), c.get(), CUBLAS_COMPUTE_32F_FAST_TF32));
  expect_tf32();
  LOCKSTEP_CUBLAS(cublasSgemm(tf32, t.operation_a(), t.operation_b(), t.m, t.n, t.k, &t.alpha, device_a.get(),
                              t.lda(), device_b.get(), t.ldb(), &t.beta, c.get(), t.ldc()));
  expect_tf32();
}

TEST(CublasGemmEx, RefusesCombinationsOfTypesThatCublasDoesNotList) {
  const Handle handle;
  const float one = 1;
  const std::vector<float> before(16, 1.0f);
  const DeviceArray<float> x(before);
  const auto call = [&](cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, x.get(), a, 2, x.get(), b, 2, &one,
                        x.get(), c, 2, compute, CUBLAS_GEMM_DEFAULT);
  };
  constexpr auto kSums = CUBLAS_COMPUTE_32F;
  EXPECT_EQ(call(CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F, kSums), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, kSums), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_32F, CUDA_R_32F, CUDA_R_16BF, kSums), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_16F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(x.host(), before);
}

TEST(CublasGemmEx, RefusesWhatBlasForbids) {
  const Handle handle;
  const std::vector<__nv_bfloat16> before = to_bfloat16(std::vector<float>(64, 1.0f));
  const DeviceArray<__nv_bfloat16> x(before);
  const auto call = [&](Case t) { return gemm(handle, t, x.get(), x.get(), x.get()); };
  EXPECT_EQ(call({false, false, -1, 2, 2}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({false, false, 4, 2, 2, 1, 0, -1}), CUBLAS_STATUS_INVALID_VALUE);        // lda < m
  EXPECT_EQ(call({false, true, 2, 4, 2, 1, 0, 0, -1}), CUBLAS_STATUS_INVALID_VALUE);      // ldb < n
  EXPECT_EQ(call({false, false, 4, 2, 2, 1, 0, 0, 0, -1}), CUBLAS_STATUS_INVALID_VALUE);  // ldc < m
  const Case fine{false, false, 2, 2, 2};
  EXPECT_EQ(gemm(nullptr, fine, x.get(), x.get(), x.get()), CUBLAS_STATUS_NOT_INITIALIZED);
  const std::vector<float> after = to_floats(x.host());
  EXPECT_EQ(after, to_floats(before));
}

}  // namespace
