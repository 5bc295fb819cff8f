// Which way a convolution goes on either machine, and what is made of cuDNN's answers: asked of pure
// functions, so a GPU's ways are tested where there is none.
#include "kernels/conv/conv_policy.h"

#include <cstdlib>

#include "kernels/check.h"
#include "kernels/conv/library_choice.h"
#include "tests/error_of.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/math_context.h"

namespace lockstep::kernels {
namespace {

constexpr Conv2dShape kFirstOfLeNet{256, 28, 28, 1, 6, 5, 5, 1, 0};
constexpr Conv2dShape kSecondOfLeNet{256, 12, 12, 6, 16, 5, 5, 1, 0};
constexpr Conv2dShape kStemOfResNet{128, 28, 28, 1, 64, 3, 3, 1, 1};
constexpr Conv2dShape kBlockOfResNet{128, 28, 28, 64, 64, 3, 3, 1, 1};
constexpr Conv2dShape kStrided{8, 28, 28, 6, 16, 3, 3, 2, 1};

constexpr ConvPass kPasses[] = {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_filter};

const LibraryAnswer kAll = [](const Conv2dShape&) { return true; };
const LibraryAnswer kNone = [](const Conv2dShape&) { return false; };
const LibraryAnswer kMultiplesOf8 = [](const Conv2dShape& s) {
  return s.in_channels % 8 == 0 && s.out_channels % 8 == 0;
};

std::string route(const ConvQuestion& question, const LibraryAnswer& library) {
  return name_of(decide(question, library).route);
}

TEST(ConvPolicy, ACpuTakesTheDirectKernelWhereChannelsAreFewAndElseTheLibrary) {
  const auto on_cpu = [](const Conv2dShape& s, ConvPass pass, const LibraryAnswer& library) {
    return route({.shape = s, .pass = pass, .machine = Machine::cpu}, library);
  };
  for (const ConvPass pass : kPasses) {
    EXPECT_EQ(on_cpu(kFirstOfLeNet, pass, kAll), "direct");
    EXPECT_EQ(on_cpu(kSecondOfLeNet, pass, kAll), "direct");
    EXPECT_EQ(on_cpu(kStemOfResNet, pass, kAll), "cuDNN");
    EXPECT_EQ(on_cpu(kBlockOfResNet, pass, kAll), "cuDNN");
    EXPECT_EQ(on_cpu(kBlockOfResNet, pass, kNone), "direct");
  }
  EXPECT_EQ(on_cpu(kStrided, ConvPass::backward_data, kNone), "im2col + own");
}

TEST(ConvPolicy, AGpuNeverTakesTheKernelOfOneWarp) {
  for (const Conv2dShape& s : {kFirstOfLeNet, kSecondOfLeNet, kStemOfResNet, kBlockOfResNet, kStrided})
    for (const ConvPass pass : kPasses)
      for (const LibraryAnswer& library : {kAll, kNone, kMultiplesOf8})
        for (const bool bfloat16 : {false, true})
          for (const Math math : {Math::library, Math::own}) {
            const ConvQuestion question{
                .shape = s, .pass = pass, .machine = Machine::gpu, .math = math, .bfloat16 = bfloat16};
            EXPECT_NE(decide(question, library).route, ConvRoute::direct);
          }
}

TEST(ConvPolicy, AGpuPadsChannelsForTensorCores) {
  const auto on_gpu = [](const Conv2dShape& s, const LibraryAnswer& library, Precision precision,
                         bool bfloat16) {
    return route({.shape = s,
                  .pass = ConvPass::forward,
                  .machine = Machine::gpu,
                  .precision = precision,
                  .bfloat16 = bfloat16},
                 library);
  };
  EXPECT_EQ(on_gpu(kFirstOfLeNet, kAll, Precision::fp32, false), "small channels");
  EXPECT_EQ(on_gpu(kFirstOfLeNet, kAll, Precision::bf16, true), "cuDNN, padded");
  EXPECT_EQ(on_gpu(kStemOfResNet, kAll, Precision::fp32, false), "cuDNN");
  EXPECT_EQ(on_gpu(kStemOfResNet, kMultiplesOf8, Precision::fp32, false), "cuDNN, padded");
  EXPECT_EQ(on_gpu(kStemOfResNet, kAll, Precision::tf32, false), "cuDNN, padded");
  EXPECT_EQ(on_gpu(kBlockOfResNet, kAll, Precision::tf32, false), "cuDNN");
  EXPECT_EQ(on_gpu(kBlockOfResNet, kAll, Precision::bf16, true), "cuDNN");
}

TEST(ConvPolicy, WhatTheLibraryDeclinesGoesThroughCublas) {
  for (const ConvPass pass : kPasses) {
    EXPECT_EQ(route({.shape = kBlockOfResNet, .pass = pass, .machine = Machine::gpu}, kNone),
              "im2col + cuBLAS");
    EXPECT_EQ(
        route({.shape = kBlockOfResNet, .pass = pass, .machine = Machine::gpu, .bfloat16 = true}, kNone),
        "through float32");
  }
  EXPECT_EQ(route({.shape = kStrided, .pass = ConvPass::backward_data, .machine = Machine::gpu}, kNone),
            "im2col + cuBLAS");
}

TEST(ConvPolicy, PassesAreAskedOneByOne) {
  const LibraryAnswer must_not_be_asked = [](const Conv2dShape&) -> bool { throw Error("asked"); };
  EXPECT_EQ(
      route({.shape = kFirstOfLeNet, .pass = ConvPass::forward, .machine = Machine::gpu}, must_not_be_asked),
      "small channels");
}

// What cuDNN's functions answer, made up.
struct Answers {
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  std::vector<cudnnConvolutionFwdAlgoPerf_t> list = {};
  std::vector<size_t> bytes = {};  // by answer
  cudnnStatus_t sized = CUDNN_STATUS_SUCCESS;

  auto chosen(const std::vector<cudnnConvolutionFwdAlgo_t>& declined = {}) const {
    return choose_algorithm<cudnnConvolutionFwdAlgoPerf_t>(
        "query",
        [&](int* count, cudnnConvolutionFwdAlgoPerf_t* answers) {
          *count = static_cast<int>(list.size());
          for (size_t i = 0; i < list.size(); ++i) answers[i] = list[i];
          return status;
        },
        [&](cudnnConvolutionFwdAlgo_t algorithm, size_t* size) {
          for (size_t i = 0; i < list.size(); ++i)
            if (list[i].algo == algorithm) *size = bytes[i];
          return sized;
        },
        declined);
  }
};

cudnnConvolutionFwdAlgoPerf_t answer(cudnnConvolutionFwdAlgo_t algorithm,
                                     cudnnDeterminism_t determinism = CUDNN_DETERMINISTIC,
                                     cudnnStatus_t status = CUDNN_STATUS_SUCCESS) {
  cudnnConvolutionFwdAlgoPerf_t perf{};
  perf.algo = algorithm;
  perf.status = status;
  perf.determinism = determinism;
  return perf;
}

TEST(LibraryChoice, NotSupportedInAnyVersionIsNoError) {
  for (const int code : {9, 3000, 3001, 3007, 3014}) {
    SCOPED_TRACE(code);
    EXPECT_FALSE((Answers{.status = static_cast<cudnnStatus_t>(code)}.chosen().supported));
    Answers unsized{.list = {answer(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM)}, .bytes = {0}};
    unsized.sized = static_cast<cudnnStatus_t>(code);
    EXPECT_FALSE(unsized.chosen().supported);
  }
  EXPECT_NE(error_of([] { Answers{.status = CUDNN_STATUS_BAD_PARAM}.chosen(); }), "");
}

TEST(LibraryChoice, AnAlgorithmThatWantsTooMuchWorkspaceIsPassedOver) {
  const auto kFirst = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  const auto kSecond = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
  const Answers two{.list = {answer(kFirst), answer(kSecond)}, .bytes = {kMostWorkspaceBytes + 1, 7}};
  EXPECT_TRUE(two.chosen().supported);
  EXPECT_EQ(two.chosen().algorithm, kSecond);
  EXPECT_EQ(two.chosen().workspace_bytes, 7u);
  const Answers one{.list = {answer(kFirst)}, .bytes = {kMostWorkspaceBytes + 1}};
  EXPECT_FALSE(one.chosen().supported);
  EXPECT_EQ(two.chosen({kSecond}).supported, false);  // declined when it ran
  const Answers random{.list = {answer(kFirst, CUDNN_NON_DETERMINISTIC), answer(kSecond)}, .bytes = {1, 2}};
  EXPECT_EQ(random.chosen().algorithm, kSecond);
}

// hostcuda's cuDNN can be made to decline; a real one does not look at the variable.
TEST(Conv, WhereCudnnDeclinesAnotherPathIsTaken) {
  const Conv2dShape s{2, 7, 6, 40, 48, 3, 3, 1, 1};  // of no other test, since answers are kept
  const test::TestMath context(Math::library);
  setenv("HOSTCUDA_CUDNN_REFUSES", "3007", 1);
  for (const ConvPass pass : kPasses) {
    const ConvChoice choice = conv2d_choice(context, s, pass, false);
    EXPECT_NE(choice.path, "") << choice.why;
    EXPECT_EQ(choice.path, kOnGpu ? choice.path : "direct");
    EXPECT_NO_THROW(conv2d_workspace_bytes<float>(context, s, pass));
    const std::string in_bfloat16 = conv2d_choice(context, s, pass, true).path;
    EXPECT_EQ(in_bfloat16, kOnGpu ? in_bfloat16 : "float32: direct");
  }
  unsetenv("HOSTCUDA_CUDNN_REFUSES");
}

}  // namespace
}  // namespace lockstep::kernels
