// cuDNN's convolutions of bfloat16 (x, w and y bfloat16, sums in float), and the math modes. Written against
// the CUDA API alone, so that the same tests hold for NVIDIA's libraries on a GPU.
#include <cuda_bf16.h>
#include <cudnn.h>

#include <cstring>
#include <vector>

#include "tests/hostcuda/convolution_problem.h"
#include "tests/hostcuda/library_test.h"

namespace {

enum class Choice { plain, best };  // an algorithm that sums plainly, or the one that is reported first

void check_pass(const Shape& s, Pass pass, float alpha, float beta, unsigned seed,
                cudnnMathType_t math = CUDNN_DEFAULT_MATH, float low = -1, Choice choice = Choice::plain) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << s << ", pass " << static_cast<int>(pass)
                                  << ", alpha " << alpha << ", beta " << beta << ", math " << math);
  std::mt19937 generator(seed);
  std::vector<__nv_bfloat16> x = to_bfloat16(random_floats(s.x_size(), generator, low)),
                             w = to_bfloat16(random_floats(s.w_size(), generator, low)),
                             y = to_bfloat16(random_floats(s.y_size(), generator, low));
  std::vector<__nv_bfloat16>& result = pass == Pass::forward ? y : pass == Pass::backward_data ? x : w;
  if (beta == 0) result = to_bfloat16(nans(result.size()));
  Problem problem(s, CUDNN_DATA_BFLOAT16, math);
  if (choice == Choice::best) problem.take_best();
  const size_t bytes = problem.workspace_bytes(pass);
  const DeviceArray<char> workspace(std::vector<char>(bytes, '\x7f'));
  const DeviceArray<__nv_bfloat16> device_x(x), device_w(w), device_y(y);
  LOCKSTEP_CUDNN(
      problem.run(pass, alpha, device_x.get(), device_w.get(), device_y.get(), beta, workspace.get(), bytes));
  const DeviceArray<__nv_bfloat16>& output = pass == Pass::forward         ? device_y
                                             : pass == Pass::backward_data ? device_x
                                                                           : device_w;
  expect_close(output.host(),
               convolve(s, pass, to_floats(x), to_floats(w), to_floats(y), alpha, beta, to_floats(result)),
               choice == Choice::best ? kWinogradTolerance : 0);
}

TEST(CudnnBfloat16, AllPassesRoundTheFloatSumOnce) {
  unsigned seed = 1;
  for (const Shape& s : {Shape{2, 16, 8, 8, 32, 3, 3, 1, 1}, Shape{3, 32, 9, 7, 16, 3, 3, 1, 2},
                         Shape{2, 64, 6, 6, 64, 1, 1, 0, 2}, Shape{2, 1, 10, 10, 64, 3, 3, 1, 1},
                         Shape{2, 3, 13, 12, 20, 7, 7, 3, 2}, Shape{4, 6, 9, 8, 16, 5, 5, 2, 1},
                         Shape{2, 5, 6, 7, 3, 3, 1, 0, 1}, Shape{1, 512, 4, 4, 16, 3, 3, 1, 1}})
    for (const Pass pass : kPasses) check_pass(s, pass, 1, 0, seed++);
}

// 3x3 with many channels may have an algorithm of its own, which must round once too.
TEST(CudnnBfloat16, TheBestAlgorithmRoundsTheFloatSumOnce) {
  unsigned seed = 50;
  const auto check = [&](const Shape& s, float alpha, float beta) {
    for (const Pass pass : kPasses)
      check_pass(s, pass, alpha, beta, seed++, CUDNN_DEFAULT_MATH, -1, Choice::best);
  };
  for (const Shape& s : {Shape{2, 16, 9, 14, 48, 3, 3, 1, 1}, Shape{3, 64, 4, 4, 80, 3, 3, 1, 1},
                         Shape{1, 16, 7, 7, 16, 3, 3, 2, 1}, Shape{2, 32, 8, 8, 16, 3, 3, 1, 2}}) {
    check(s, 1, 0);
    check(s, 0.5f, -0.25f);
  }
}

// Thousands of terms, all positive: a sum kept in bfloat16 would stop growing at the first hundreds, and one
// of sums that were rounded before would be off by several roundings.
TEST(CudnnBfloat16, FilterGradientIsSummedInFloatOverTheBatch) {
  for (const Choice choice : {Choice::plain, Choice::best})
    check_pass({16, 16, 16, 16, 16, 3, 3, 1, 1}, Pass::backward_filter, 1, 0, 100, CUDNN_DEFAULT_MATH, 0.5f,
               choice);
}

TEST(CudnnBfloat16, ScalesByAlphaAndBetaAndRoundsOnce) {
  for (const Pass pass : kPasses) {
    check_pass({3, 16, 8, 9, 32, 3, 3, 1, 1}, pass, 0.5f, 0, 200);
    check_pass({3, 6, 8, 9, 16, 5, 5, 2, 1}, pass, 1, 1, 201);
    check_pass({3, 16, 8, 9, 32, 3, 3, 1, 1}, pass, 1.5f, -0.25f, 202);
  }
}

TEST(CudnnBfloat16, TensorOpMathIsAccepted) {
  for (const cudnnMathType_t math : {CUDNN_TENSOR_OP_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION})
    check_pass({2, 16, 8, 8, 32, 3, 3, 1, 1}, Pass::forward, 1, 0, 300, math);
}

TEST(CudnnBfloat16, RepeatsBitForBit) {
  const Shape s{8, 16, 13, 13, 48, 3, 3, 1, 1};
  SCOPED_TRACE("seed 400");
  std::mt19937 generator(400);
  Problem problem(s, CUDNN_DATA_BFLOAT16, CUDNN_DEFAULT_MATH);
  const DeviceArray<__nv_bfloat16> x(to_bfloat16(random_floats(s.x_size(), generator))),
      w(to_bfloat16(random_floats(s.w_size(), generator))),
      y(to_bfloat16(random_floats(s.y_size(), generator)));
  for (const int run : {0, 1, 2, 3, 4, 5}) {  // the three passes by a plain algorithm, then by the best one
    const Pass pass = kPasses[run % 3];
    if (run == 3) {
      ASSERT_TRUE(problem.take_best());
    }
    const size_t bytes = problem.workspace_bytes(pass);
    const DeviceArray<char> workspace((std::vector<char>(bytes)));
    const DeviceArray<__nv_bfloat16> output(to_bfloat16(nans(s.size_of(pass))));
    std::vector<__nv_bfloat16> first;
    for (int repeat = 0; repeat < 5; ++repeat) {
      LOCKSTEP_CUDNN(problem.run(pass, 1, pass == Pass::backward_data ? output.get() : x.get(),
                                 pass == Pass::backward_filter ? output.get() : w.get(),
                                 pass == Pass::forward ? output.get() : y.get(), 0, workspace.get(), bytes));
      const std::vector<__nv_bfloat16> got = output.host();
      if (repeat == 0) first = got;
      ASSERT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(__nv_bfloat16)), 0)
          << "run " << run << ", repeat " << repeat;
    }
  }
}

TEST(CudnnBfloat16, NamesAnAlgorithmThatItThenSupports) {
  const Problem p({4, 16, 14, 14, 32, 3, 3, 1, 1}, CUDNN_DATA_BFLOAT16, CUDNN_DEFAULT_MATH);
  int count = 0;
  size_t bytes = 0;
  cudnnConvolutionBwdFilterAlgoPerf_t filter[8];
  LOCKSTEP_CUDNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(p.handle, p.x, p.y, p.convolution, p.w, 8,
                                                               &count, filter));
  ASSERT_GE(count, 1);
  ASSERT_EQ(filter[0].status, CUDNN_STATUS_SUCCESS);
  LOCKSTEP_CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize(p.handle, p.x, p.y, p.convolution, p.w,
                                                                filter[0].algo, &bytes));
  EXPECT_LE(bytes, filter[0].memory);
}

// cuDNN 9 refines its codes within a category: 2000 bad parameter, 3000 not supported.
bool is_refused(cudnnStatus_t status) {
  const int category = static_cast<int>(status) / 1000 * 1000;
  return category == CUDNN_STATUS_BAD_PARAM || category == CUDNN_STATUS_NOT_SUPPORTED;
}

TEST(CudnnBfloat16, RefusesOperandsOfDifferentTypes) {
  const Shape s{2, 16, 8, 8, 32, 3, 3, 1, 1};
  const auto status = [&](const Problem& p) {
    size_t bytes = 0;
    return cudnnGetConvolutionForwardWorkspaceSize(p.handle, p.x, p.w, p.convolution, p.y, p.forward, &bytes);
  };
  {
    const Problem p(s, CUDNN_DATA_BFLOAT16, CUDNN_DEFAULT_MATH);
    EXPECT_EQ(status(p), CUDNN_STATUS_SUCCESS);
    LOCKSTEP_CUDNN(
        cudnnSetFilter4dDescriptor(p.w, CUDNN_DATA_FLOAT, s.format, s.k, s.c, s.kernel_h, s.kernel_w));
    EXPECT_TRUE(is_refused(status(p))) << "float weights: " << status(p);
  }
  {
    const Problem p(s, CUDNN_DATA_BFLOAT16, CUDNN_DEFAULT_MATH);
    LOCKSTEP_CUDNN(cudnnSetConvolution2dDescriptor(p.convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                                   CUDNN_DATA_BFLOAT16));
    EXPECT_TRUE(is_refused(status(p))) << "sums in bfloat16: " << status(p);
  }
}

// TF32 is what CUDNN_DEFAULT_MATH means for float on Ampere and later: 10 bits of every operand are kept.
TEST(CudnnMathModes, FloatInDefaultMathIsAtLeastTf32) {
  const Shape s{2, 16, 8, 8, 32, 3, 3, 1, 1};
  SCOPED_TRACE("seed 500");
  std::mt19937 generator(500);
  const std::vector<float> x = random_floats(s.x_size(), generator), w = random_floats(s.w_size(), generator);
  for (const cudnnMathType_t math : {CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_FMA_MATH}) {
    const Problem problem(s, CUDNN_DATA_FLOAT, math);
    const size_t bytes = problem.workspace_bytes(Pass::forward);
    const DeviceArray<char> workspace((std::vector<char>(bytes)));
    const DeviceArray<float> device_x(x), device_w(w), y(nans(s.y_size()));
    LOCKSTEP_CUDNN(
        problem.run(Pass::forward, 1, device_x.get(), device_w.get(), y.get(), 0, workspace.get(), bytes));
    const std::vector<Sum> wanted = convolve(s, Pass::forward, x, w, {}, 1, 0, {});
    const std::vector<float> got = y.host();
    for (size_t i = 0; i < got.size(); ++i)  // two operands, each cut by a relative 2^-10 at most
      ASSERT_NEAR(got[i], wanted[i].value, wanted[i].tolerance() + wanted[i].magnitude * 0x2p-10)
          << "math " << math << ", element " << i;
  }
}

}  // namespace
