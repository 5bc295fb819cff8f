// A process may end while work is running: nothing crashes, and the exit code is the program's.
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace {

void exit_with_products_running(bool first_call_is_over) {
  constexpr int kSize = 300;
  float *a = nullptr, *c = nullptr;
  cudaStream_t stream = nullptr;
  cublasHandle_t handle = nullptr;
  if (cudaMalloc(&a, kSize * kSize * sizeof(float)) != cudaSuccess ||
      cudaMalloc(&c, kSize * kSize * sizeof(float)) != cudaSuccess ||
      cudaMemset(a, 0, kSize * kSize * sizeof(float)) != cudaSuccess ||
      cudaStreamCreate(&stream) != cudaSuccess || cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS ||
      cublasSetStream(handle, stream) != CUBLAS_STATUS_SUCCESS)
    std::exit(1);
  const float one = 1, zero = 0;
  for (int i = 0; i < 200; ++i) {
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a, kSize, a, kSize, &zero, c,
                kSize);
    if (i == 0 && first_call_is_over) cudaStreamSynchronize(stream);
  }
  std::exit(7);
}

TEST(Exit, WhileLibraryWorkRunsIsClean) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool first_call_is_over : {true, false})
    for (int repeat = 0; repeat < 5; ++repeat)
      EXPECT_EXIT(exit_with_products_running(first_call_is_over), testing::ExitedWithCode(7), "");
}

}  // namespace
