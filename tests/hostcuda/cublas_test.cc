// cuBLAS against plain loops in double. Written against the CUDA API alone, so that the same tests hold for
// NVIDIA's libraries on a GPU.
#include <cublas_v2.h>

#include <cstring>
#include <memory>
#include <utility>

#include "tests/hostcuda/library_test.h"
#include "tests/hostcuda/product_case.h"

namespace {

// C holds NaN wherever a product with beta = 0 must not look.
std::vector<float> output_values(const Case& t, std::mt19937& generator) {
  std::vector<float> c = random_floats(t.c_size(), generator);
  if (t.beta == 0)
    for (int column = 0; column < t.n; ++column)
      for (int row = 0; row < t.m; ++row)
        c[static_cast<size_t>(column) * t.ldc() + row] = std::numeric_limits<float>::quiet_NaN();
  return c;
}

void check_sgemm(const Case& t, unsigned seed, cudaStream_t stream = nullptr) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", op(A) " << t.transpose_a << ", op(B) "
                                  << t.transpose_b << ", " << t.m << " x " << t.n << " x " << t.k
                                  << ", alpha " << t.alpha << ", beta " << t.beta << ", ldc " << t.ldc());
  std::mt19937 generator(seed);
  const std::vector<float> a = random_floats(t.a_size(), generator), b = random_floats(t.b_size(), generator),
                           c = output_values(t, generator);
  const DeviceArray<float> device_a(a), device_b(b), device_c(c);
  const Handle handle;
  LOCKSTEP_CUBLAS(cublasSetStream(handle, stream));
  LOCKSTEP_CUBLAS(cublasSgemm(handle, t.operation_a(), t.operation_b(), t.m, t.n, t.k, &t.alpha,
                              device_a.get(), t.lda(), device_b.get(), t.ldb(), &t.beta, device_c.get(),
                              t.ldc()));
  expect_close(device_c.host(), multiply(t, a.data(), b.data(), c.data()));
}

TEST(CublasSgemm, MultipliesInAllFourTranspositionsAtOddSizes) {
  unsigned seed = 1;
  const int sizes[][3] = {{1, 1, 1},    {1, 7, 3},    {5, 1, 9},      {3, 5, 1},     {17, 13, 11},
                          {31, 33, 32}, {10, 64, 84}, {120, 37, 257}, {129, 65, 300}};
  for (const auto& size : sizes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        check_sgemm({transpose_a, transpose_b, size[0], size[1], size[2]}, seed++);
}

TEST(CublasSgemm, HonoursLeadingDimensionsAlphaAndBeta) {
  unsigned seed = 100;
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const float alpha : {1.0f, -0.5f, 0.0f})
        for (const float beta : {0.0f, 1.0f, 0.75f})
          check_sgemm({transpose_a, transpose_b, 19, 23, 29, alpha, beta, 3, 5, 7}, seed++);
}

TEST(CublasSgemm, WithoutProductsScalesC) {
  for (const float beta : {0.0f, 1.0f, -2.0f}) check_sgemm({false, false, 4, 5, 0, 1, beta, 0, 0, 2}, 200);
}

TEST(CublasSgemm, LeavesCAloneWhereAnOutputDimensionIsZero) {
  const std::vector<float> before = {1, 2, 3};
  const DeviceArray<float> c(before);
  const Handle handle;
  const float alpha = 1, beta = 0;
  EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 0, 3, 2, &alpha, c.get(), 1, c.get(), 2, &beta,
                        c.get(), 1),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 3, 0, 2, &alpha, c.get(), 3, c.get(), 2, &beta,
                        c.get(), 3),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.host(), before);
}

TEST(CublasSgemm, ReadsScalarsFromTheDeviceInDevicePointerMode) {
  std::mt19937 generator(300);
  const Case t{false, true, 6, 7, 8, 2.5f, -1.5f};
  const std::vector<float> a = random_floats(t.a_size(), generator), b = random_floats(t.b_size(), generator),
                           c = random_floats(t.c_size(), generator);
  const DeviceArray<float> device_a(a), device_b(b), device_c(c), scalars({t.alpha, t.beta});
  const Handle handle;
  LOCKSTEP_CUBLAS(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
  LOCKSTEP_CUBLAS(cublasSgemm(handle, t.operation_a(), t.operation_b(), t.m, t.n, t.k, scalars.get(),
                              device_a.get(), t.lda(), device_b.get(), t.ldb(), scalars.get() + 1,
                              device_c.get(), t.ldc()));
  expect_close(device_c.host(), multiply(t, a.data(), b.data(), c.data()));
}

TEST(CublasSgemm, RepeatsBitForBit) {
  std::mt19937 generator(400);
  const Case t{false, false, 120, 256, 400};
  const DeviceArray<float> a(random_floats(t.a_size(), generator)), b(random_floats(t.b_size(), generator)),
      c(nans(t.c_size()));
  const Handle handle;
  std::vector<float> first;
  for (int repeat = 0; repeat < 5; ++repeat) {
    LOCKSTEP_CUBLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, t.m, t.n, t.k, &t.alpha, a.get(), t.lda(),
                                b.get(), t.ldb(), &t.beta, c.get(), t.ldc()));
    const std::vector<float> got = c.host();
    if (repeat == 0) first = got;
    ASSERT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)), 0) << "repeat " << repeat;
  }
}

TEST(CublasSgemm, RunsInTheOrderOfItsStream) {
  cudaStream_t stream;
  LOCKSTEP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check_sgemm({true, false, 33, 21, 55, 1, 1}, 500, stream);
  // 1.1 to the power of 2^5, by squaring in place of waiting: each product needs the one before it.
  const Handle handle;
  LOCKSTEP_CUBLAS(cublasSetStream(handle, stream));
  const DeviceArray<float> x({1.1f}), y(nans(1));
  const float one = 1, zero = 0;
  float *from = x.get(), *to = y.get();
  for (int step = 0; step < 5; ++step) {
    LOCKSTEP_CUBLAS(
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, from, 1, from, 1, &zero, to, 1));
    std::swap(from, to);
  }
  LOCKSTEP_CUDA(cudaStreamSynchronize(stream));
  // 2^5 roundings at most, each of a relative 2^-24, and that of 1.1f itself 32 times over.
  EXPECT_NEAR(y.host()[0], std::pow(1.1, 32), std::pow(1.1, 32) * 64 * 6e-8);
  LOCKSTEP_CUDA(cudaStreamDestroy(stream));
}

TEST(CublasSgemm, RunsOnTwoDevicesAtOnce) {
  int devices = 0;
  LOCKSTEP_CUDA(cudaGetDeviceCount(&devices));
  if (devices < 2) GTEST_SKIP() << "needs 2 devices, found " << devices;
  const Case t{false, false, 150, 140, 130};
  std::mt19937 generator(600);
  const std::vector<float> a = random_floats(t.a_size(), generator), b = random_floats(t.b_size(), generator);
  const std::vector<float> c = nans(t.c_size());
  std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
  std::vector<std::unique_ptr<Handle>> handles;
  for (int device = 0; device < 2; ++device) {
    LOCKSTEP_CUDA(cudaSetDevice(device));
    handles.push_back(std::make_unique<Handle>());
    for (const auto& values : {a, b, c}) arrays.push_back(std::make_unique<DeviceArray<float>>(values));
  }
  for (int device = 0; device < 2; ++device) {
    LOCKSTEP_CUDA(cudaSetDevice(device));
    const auto* operands = &arrays[static_cast<size_t>(3 * device)];
    for (int repeat = 0; repeat < 10; ++repeat)
      LOCKSTEP_CUBLAS(cublasSgemm(*handles[static_cast<size_t>(device)], CUBLAS_OP_N, CUBLAS_OP_N, t.m, t.n,
                                  t.k, &t.alpha, operands[0]->get(), t.lda(), operands[1]->get(), t.ldb(),
                                  &t.beta, operands[2]->get(), t.ldc()));
  }
  const std::vector<Sum> wanted = multiply(t, a.data(), b.data(), c.data());
  for (int device = 0; device < 2; ++device) {
    SCOPED_TRACE(testing::Message() << "device " << device << ", seed 600");
    LOCKSTEP_CUDA(cudaSetDevice(device));
    expect_close(arrays[static_cast<size_t>(3 * device + 2)]->host(), wanted);
    arrays[static_cast<size_t>(3 * device)].reset();
  }
  handles.clear();
  LOCKSTEP_CUDA(cudaSetDevice(0));
}

TEST(CublasSgemm, RefusesWhatBlasForbids) {
  const DeviceArray<float> x(std::vector<float>(64, 1.0f));
  const Handle handle;
  const float one = 1;
  float* const p = x.get();
  const auto call = [&](cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, int lda, int ldb,
                        int ldc, const float* alpha, const float* beta) {
    return cublasSgemm(handle, ta, tb, m, n, k, alpha, p, lda, p, ldb, beta, p, ldc);
  };
  constexpr auto N = CUBLAS_OP_N, T = CUBLAS_OP_T;
  EXPECT_EQ(call(N, N, -1, 2, 2, 2, 2, 2, &one, &one), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(N, N, 2, -1, 2, 2, 2, 2, &one, &one), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(N, N, 2, 2, -1, 2, 2, 2, &one, &one), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(N, N, 4, 2, 2, 3, 2, 4, &one, &one), CUBLAS_STATUS_INVALID_VALUE);  // lda < m
  EXPECT_EQ(call(T, N, 2, 2, 4, 3, 4, 2, &one, &one), CUBLAS_STATUS_INVALID_VALUE);  // lda < k
  EXPECT_EQ(call(N, N, 2, 2, 4, 2, 3, 2, &one, &one), CUBLAS_STATUS_INVALID_VALUE);  // ldb < k
  EXPECT_EQ(call(N, T, 2, 4, 2, 2, 3, 2, &one, &one), CUBLAS_STATUS_INVALID_VALUE);  // ldb < n
  EXPECT_EQ(call(N, N, 4, 2, 2, 4, 2, 3, &one, &one), CUBLAS_STATUS_INVALID_VALUE);  // ldc < m
  EXPECT_EQ(call(N, N, 2, 2, 2, 2, 2, 2, nullptr, &one), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(N, N, 2, 2, 2, 2, 2, 2, &one, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSgemm(nullptr, N, N, 2, 2, 2, &one, p, 2, p, 2, &one, p, 2), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(x.host(), std::vector<float>(64, 1.0f));
}

TEST(CublasSgemmStridedBatched, MultipliesEveryMatrixAndSharesOneWithStrideZero) {
  for (const long long a_apart : {0LL, 1LL}) {
    const unsigned seed = 700;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", A " << (a_apart ? "apart" : "shared"));
    std::mt19937 generator(seed);
    const Case t{true, false, 9, 11, 14, 1.5f, 0.5f, 2, 0, 1, 4};
    const long long stride_a = a_apart * static_cast<long long>(t.a_size() + 5);
    const long long stride_b = static_cast<long long>(t.b_size() + 3);
    const long long stride_c = static_cast<long long>(t.c_size() + 2);
    const auto batches = static_cast<size_t>(t.batches);
    const std::vector<float> a = random_floats((t.a_size() + 5) * batches, generator),
                             b = random_floats(static_cast<size_t>(stride_b) * batches, generator),
                             c = random_floats(static_cast<size_t>(stride_c) * batches, generator);
    const DeviceArray<float> device_a(a), device_b(b), device_c(c);
    const Handle handle;
    LOCKSTEP_CUBLAS(cublasSgemmStridedBatched(
        handle, t.operation_a(), t.operation_b(), t.m, t.n, t.k, &t.alpha, device_a.get(), t.lda(), stride_a,
        device_b.get(), t.ldb(), stride_b, &t.beta, device_c.get(), t.ldc(), stride_c, t.batches));
    const std::vector<float> got = device_c.host();
    for (int batch = 0; batch < t.batches; ++batch) {
      SCOPED_TRACE(testing::Message() << "batch " << batch);
      const float* const first = got.data() + batch * stride_c;
      expect_close(
          std::vector<float>(first, first + t.c_size()),
          multiply(t, a.data() + batch * stride_a, b.data() + batch * stride_b, c.data() + batch * stride_c));
    }
  }
}

TEST(CublasHandle, KeepsItsStreamAndModes) {
  cublasHandle_t handle = nullptr;
  EXPECT_EQ(cublasCreate(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  cudaStream_t stream, got = nullptr;
  LOCKSTEP_CUDA(cudaStreamCreate(&stream));
  EXPECT_EQ(cublasGetStream(handle, &got), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(got, nullptr);
  EXPECT_EQ(cublasSetStream(handle, stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetStream(handle, &got), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(got, stream);
  cublasMath_t math = CUBLAS_PEDANTIC_MATH;
  EXPECT_EQ(cublasGetMathMode(handle, &math), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(math, CUBLAS_DEFAULT_MATH);
  EXPECT_EQ(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetMathMode(handle, &math), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(math, CUBLAS_TF32_TENSOR_OP_MATH);
  EXPECT_EQ(cublasSetWorkspace(handle, nullptr, 0), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_STREQ(cublasGetStatusName(CUBLAS_STATUS_INVALID_VALUE), "CUBLAS_STATUS_INVALID_VALUE");
  LOCKSTEP_CUDA(cudaStreamDestroy(stream));
}

}  // namespace
