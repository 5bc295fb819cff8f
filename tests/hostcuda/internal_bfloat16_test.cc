// oneDNN's own bfloat16 convolutions, which hostcuda takes only where they are faster than float: here
// wherever the processor has the instructions.
#include <cublas_v2.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "hostcuda/src/libraries/onednn_convolution.h"
#include "tests/hostcuda/convolution_problem.h"
#include "tests/hostcuda/library_test.h"
#include "tests/hostcuda/product_case.h"

namespace {

TEST(InternalBfloat16, OnednnRoundsTheFloatSumOnce) {
  if (!__builtin_cpu_supports("avx512bf16")) GTEST_SKIP() << "needs a processor with AVX-512's bfloat16";
  SCOPED_TRACE("seed 1");
  std::mt19937 generator(1);
  const auto draw = [&](size_t count) { return to_bfloat16(random_floats(count, generator, 0.25f)); };
  // Never destroyed, like all convolutions: a thread remembers them by address.
  static auto& made = *new std::vector<std::unique_ptr<hostcuda::onednn::OnednnConvolution>>;
  for (const Shape& s : {Shape{3, 32, 9, 7, 16, 3, 3, 1, 2}, Shape{2, 64, 6, 6, 64, 1, 1, 0, 2},
                         Shape{16, 16, 16, 16, 16, 3, 3, 1, 1}})
    for (const Pass pass : kPasses) {
      SCOPED_TRACE(testing::Message() << s << ", pass " << static_cast<int>(pass));
      made.push_back(std::make_unique<hostcuda::onednn::OnednnConvolution>(hostcuda::ConvolutionProblem{
          static_cast<hostcuda::Pass>(pass), hostcuda::Arithmetic::bfloat16, hostcuda::Layout::nhwc,
          hostcuda::Layout::nhwc, s.n, s.c, s.h, s.w, s.k, s.kernel_h, s.kernel_w, s.out_h(), s.out_w(),
          s.padding, s.padding, s.stride, s.stride, 1}));
      const auto& convolution = *made.back();
      std::vector<__nv_bfloat16> x = draw(s.x_size()), w = draw(s.w_size()), y = draw(s.y_size());
      const std::vector<Sum> wanted = convolve(s, pass, to_floats(x), to_floats(w), to_floats(y), 1, 0, {});
      std::vector<std::byte> workspace(convolution.workspace_bytes());
      convolution.run(1, {x.data(), w.data(), y.data()}, workspace.data(), 0);
      expect_close(pass == Pass::forward ? y : pass == Pass::backward_data ? x : w, wanted);
    }
}

// On a device without instructions: its name says so, and a product and a convolution are right.
int compute_in_float() {
  cudaDeviceProp properties;
  LOCKSTEP_CUDA(cudaGetDeviceProperties(&properties, 0));
  EXPECT_NE(std::string(properties.name).find("bfloat16 computed in float32"), std::string::npos)
      << properties.name;
  std::mt19937 generator(2);
  const auto draw = [&](size_t count) { return to_bfloat16(random_floats(count, generator)); };
  const Case t{false, true, 19, 7, 40, 1, 0, 3, 2, 1};
  const std::vector<__nv_bfloat16> a = draw(t.a_size()), b = draw(t.b_size());
  const std::vector<float> before = random_floats(t.c_size(), generator);
  const DeviceArray<__nv_bfloat16> device_a(a), device_b(b);
  const DeviceArray<float> c(before);
  LOCKSTEP_CUBLAS(cublasGemmEx(Handle(), t.operation_a(), t.operation_b(), t.m, t.n, t.k, &t.alpha,
                               device_a.get(), CUDA_R_16BF, t.lda(), device_b.get(), CUDA_R_16BF, t.ldb(),
                               &t.beta, c.get(), CUDA_R_32F, t.ldc(), CUBLAS_COMPUTE_32F,
                               CUBLAS_GEMM_DEFAULT));
  expect_close(c.host(), multiply(t, to_floats(a).data(), to_floats(b).data(), before.data()));

  const Shape s{2, 16, 9, 8, 32, 3, 3, 1, 2};
  const std::vector<__nv_bfloat16> x = draw(s.x_size()), w = draw(s.w_size()), y = draw(s.y_size());
  const Problem problem(s, CUDNN_DATA_BFLOAT16, CUDNN_DEFAULT_MATH);
  for (const Pass pass : kPasses) {
    SCOPED_TRACE(testing::Message() << "pass " << static_cast<int>(pass));
    const size_t bytes = problem.workspace_bytes(pass);
    const DeviceArray<char> workspace((std::vector<char>(bytes)));
    const DeviceArray<__nv_bfloat16> device_x(x), device_w(w), device_y(y);
    LOCKSTEP_CUDNN(
        problem.run(pass, 1, device_x.get(), device_w.get(), device_y.get(), 0, workspace.get(), bytes));
    expect_close((pass == Pass::forward         ? device_y
                  : pass == Pass::backward_data ? device_x
                                                : device_w)
                     .host(),
                 convolve(s, pass, to_floats(x), to_floats(w), to_floats(y), 1, 0, {}));
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

TEST(InternalBfloat16, WithoutInstructionsItIsComputedInFloatAndTheDeviceSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  EXPECT_EXIT(std::exit(compute_in_float()), testing::ExitedWithCode(0), "");
  unsetenv("ONEDNN_MAX_CPU_ISA");
}

}  // namespace
