// cuDNN's convolutions against plain loops in double. Written against the CUDA API alone, so that the same
// tests hold for NVIDIA's libraries on a GPU.
#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/hostcuda/convolution_problem.h"
#include "tests/hostcuda/library_test.h"

namespace {

void check_pass(const Shape& s, Pass pass, float alpha, float beta, unsigned seed,
                cudaStream_t stream = nullptr) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << s << ", pass " << static_cast<int>(pass)
                                  << ", alpha " << alpha << ", beta " << beta);
  std::mt19937 generator(seed);
  std::vector<float> x = random_floats(s.x_size(), generator), w = random_floats(s.w_size(), generator),
                     y = random_floats(s.y_size(), generator);
  std::vector<float>& result = pass == Pass::forward ? y : pass == Pass::backward_data ? x : w;
  if (beta == 0) result = nans(result.size());
  const Problem problem(s);
  LOCKSTEP_CUDNN(cudnnSetStream(problem.handle, stream));
  const size_t bytes = problem.workspace_bytes(pass);
  const DeviceArray<char> workspace(std::vector<char>(bytes, '\x7f'));
  const DeviceArray<float> device_x(x), device_w(w), device_y(y);
  LOCKSTEP_CUDNN(
      problem.run(pass, alpha, device_x.get(), device_w.get(), device_y.get(), beta, workspace.get(), bytes));
  const DeviceArray<float>& output = pass == Pass::forward         ? device_y
                                     : pass == Pass::backward_data ? device_x
                                                                   : device_w;
  const std::vector<float> got = output.host();
  expect_close(got, convolve(s, pass, x, w, y, alpha, beta, result));
}

TEST(CudnnConvolution, AllPassesAgreeWithPlainLoopsOverKernelsStridesPaddingsAndChannels) {
  constexpr int kChannels[] = {1, 3, 6, 16, 20, 50, 64};
  unsigned seed = 1;
  for (const int kernel : {1, 3, 5, 7})
    for (const int stride : {1, 2})
      for (const int padding : {0, 1, 2, 3}) {
        std::mt19937 draw(seed);
        const auto pick = [&](int low, int high) {
          return std::uniform_int_distribution<int>(low, high)(draw);
        };
        Shape s{pick(1, 5),
                kChannels[pick(0, 6)],
                pick(7, 11),
                pick(7, 11),
                kChannels[pick(0, 6)],
                kernel,
                kernel,
                padding,
                stride};
        for (const Pass pass : kPasses) {
          check_pass(s, pass, 1, 0, seed);
          check_pass(s, pass, 1, 1, seed);
          if (HasFatalFailure()) return;
        }
        ++seed;
      }
}

// Strides that leave inputs without a tap (1x1, stride 2), that do not divide the size, and kernels that are
// all padding at a border.
TEST(CudnnConvolution, AllPassesAgreeWithPlainLoopsWhereChannelsFillVectors) {
  constexpr int kIn[] = {16, 32, 48}, kOut[] = {16, 48, 80};
  unsigned seed = 700;
  for (const int kernel : {1, 2, 3, 5})
    for (const int stride : {1, 2, 3})
      for (const int padding : {0, 1, 2}) {
        std::mt19937 draw(seed);
        const auto pick = [&](int low, int high) {
          return std::uniform_int_distribution<int>(low, high)(draw);
        };
        const Shape s{pick(1, 3), kIn[pick(0, 2)], pick(5, 9), pick(5, 9), kOut[pick(0, 2)],
                      kernel,     kernel,          padding,    stride};
        for (const Pass pass : kPasses) {
          check_pass(s, pass, 1, 0, seed);
          check_pass(s, pass, 0.5f, -0.25f, seed);
          if (HasFatalFailure()) return;
        }
        ++seed;
      }
}

TEST(CudnnConvolution, EveryChannelPairWorks) {
  unsigned seed = 100;
  for (const int in : {1, 3, 6, 16, 20, 50, 64})
    for (const int out : {1, 3, 6, 16, 20, 50, 64}) {
      for (const Pass pass : kPasses) check_pass({2, in, 6, 5, out, 3, 3, 1, 1}, pass, 1, 0, seed);
      ++seed;
    }
}

TEST(CudnnConvolution, ScalesByAlphaAndBeta) {
  for (const Pass pass : kPasses)
    for (const float beta : {0.0f, -0.25f}) check_pass({3, 6, 8, 9, 16, 5, 5, 2, 1}, pass, 0.5f, beta, 200);
}

TEST(CudnnConvolution, KernelsNeedNotBeSquare) {
  for (const Pass pass : kPasses) check_pass({2, 4, 9, 8, 5, 3, 1, 0, 1}, pass, 1, 0, 250);
}

TEST(CudnnConvolution, WorksInNchwToo) {
  for (const Pass pass : kPasses) {
    check_pass({3, 6, 8, 9, 16, 5, 5, 2, 1, CUDNN_TENSOR_NCHW}, pass, 1, 0, 300);
    check_pass({2, 16, 9, 7, 20, 3, 3, 1, 2, CUDNN_TENSOR_NCHW}, pass, 1, 1, 301);
  }
}

TEST(CudnnConvolution, RunsOnASecondStream) {
  cudaStream_t stream;
  LOCKSTEP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const Pass pass : kPasses) check_pass({4, 6, 12, 12, 16, 5, 5, 0, 1}, pass, 1, 0, 400, stream);
  LOCKSTEP_CUDA(cudaStreamDestroy(stream));
}

TEST(CudnnConvolution, RepeatsBitForBit) {
  const Shape s{8, 20, 13, 13, 50, 5, 5, 0, 1};
  std::mt19937 generator(500);
  const Problem problem(s);
  const DeviceArray<float> x(random_floats(s.x_size(), generator)), w(random_floats(s.w_size(), generator)),
      y(random_floats(s.y_size(), generator));
  for (const Pass pass : kPasses) {
    const size_t bytes = problem.workspace_bytes(pass);
    const DeviceArray<char> workspace((std::vector<char>(bytes)));
    const DeviceArray<float> output(nans(s.size_of(pass)));
    std::vector<float> first;
    for (int repeat = 0; repeat < 5; ++repeat) {
      LOCKSTEP_CUDNN(problem.run(pass, 1, pass == Pass::backward_data ? output.get() : x.get(),
                                 pass == Pass::backward_filter ? output.get() : w.get(),
                                 pass == Pass::forward ? output.get() : y.get(), 0, workspace.get(), bytes));
      const std::vector<float> got = output.host();
      if (repeat == 0) first = got;
      ASSERT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)), 0)
          << "pass " << static_cast<int>(pass) << ", repeat " << repeat;
    }
  }
}

TEST(CudnnConvolution, RunsOnTwoDevicesAtOnce) {
  int devices = 0;
  LOCKSTEP_CUDA(cudaGetDeviceCount(&devices));
  if (devices < 2) GTEST_SKIP() << "needs 2 devices, found " << devices;
  const Shape s{16, 6, 12, 12, 16, 5, 5, 0, 1};
  std::mt19937 generator(600);
  const std::vector<float> x = random_floats(s.x_size(), generator), w = random_floats(s.w_size(), generator);
  struct Replica {
    explicit Replica(const Shape& shape, const std::vector<float>& x_values,
                     const std::vector<float>& w_values)
        : problem(shape),
          bytes(problem.workspace_bytes(Pass::forward)),
          workspace(std::vector<char>(bytes)),
          x(x_values),
          w(w_values),
          y(nans(shape.y_size())) {}
    Problem problem;
    size_t bytes;
    DeviceArray<char> workspace;
    DeviceArray<float> x, w, y;
  };
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int device = 0; device < 2; ++device) {
    LOCKSTEP_CUDA(cudaSetDevice(device));
    replicas.push_back(std::make_unique<Replica>(s, x, w));
  }
  for (int repeat = 0; repeat < 10; ++repeat)
    for (int device = 0; device < 2; ++device) {
      LOCKSTEP_CUDA(cudaSetDevice(device));
      const Replica& r = *replicas[static_cast<size_t>(device)];
      LOCKSTEP_CUDNN(
          r.problem.run(Pass::forward, 1, r.x.get(), r.w.get(), r.y.get(), 0, r.workspace.get(), r.bytes));
    }
  const std::vector<Sum> wanted = convolve(s, Pass::forward, x, w, {}, 1, 0, {});
  for (int device = 0; device < 2; ++device) {
    SCOPED_TRACE(testing::Message() << "device " << device << ", seed 600");
    LOCKSTEP_CUDA(cudaSetDevice(device));
    expect_close(replicas[static_cast<size_t>(device)]->y.host(), wanted);
    replicas[static_cast<size_t>(device)].reset();
  }
  LOCKSTEP_CUDA(cudaSetDevice(0));
}

TEST(CudnnConvolution, NamesAnAlgorithmThatItThenSupports) {
  const Problem p({4, 1, 28, 28, 6, 5, 5, 0, 1});
  int count = 0;
  size_t bytes = 0;
  cudnnConvolutionFwdAlgoPerf_t forward[8];
  LOCKSTEP_CUDNN(
      cudnnGetConvolutionForwardAlgorithm_v7(p.handle, p.x, p.w, p.convolution, p.y, 8, &count, forward));
  ASSERT_GE(count, 1);
  ASSERT_EQ(forward[0].status, CUDNN_STATUS_SUCCESS);
  LOCKSTEP_CUDNN(cudnnGetConvolutionForwardWorkspaceSize(p.handle, p.x, p.w, p.convolution, p.y,
                                                         forward[0].algo, &bytes));
  cudnnConvolutionBwdDataAlgoPerf_t data[8];
  LOCKSTEP_CUDNN(
      cudnnGetConvolutionBackwardDataAlgorithm_v7(p.handle, p.w, p.y, p.convolution, p.x, 8, &count, data));
  ASSERT_GE(count, 1);
  LOCKSTEP_CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize(p.handle, p.w, p.y, p.convolution, p.x,
                                                              data[0].algo, &bytes));
  cudnnConvolutionBwdFilterAlgoPerf_t filter[8];
  LOCKSTEP_CUDNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(p.handle, p.x, p.y, p.convolution, p.w, 8,
                                                               &count, filter));
  ASSERT_GE(count, 1);
  LOCKSTEP_CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize(p.handle, p.x, p.y, p.convolution, p.w,
                                                                filter[0].algo, &bytes));
}

TEST(CudnnConvolution, ComputesTheOutputSize) {
  const Problem p({4, 3, 28, 27, 6, 5, 3, 2, 2});
  int n, c, h, w;
  LOCKSTEP_CUDNN(cudnnGetConvolution2dForwardOutputDim(p.convolution, p.x, p.w, &n, &c, &h, &w));
  EXPECT_EQ(n, 4);
  EXPECT_EQ(c, 6);
  EXPECT_EQ(h, (28 + 4 - 5) / 2 + 1);
  EXPECT_EQ(w, (27 + 4 - 3) / 2 + 1);
}

// cuDNN 9 refines its codes within a category: 2000 bad parameter, 3000 not supported.
int category(cudnnStatus_t status) {
  return static_cast<int>(status) / 1000 * 1000;
}

TEST(CudnnConvolution, RefusesBadArguments) {
  const Shape s{2, 3, 8, 8, 4, 3, 3, 1, 1};
  const Problem p(s);
  const size_t bytes = p.workspace_bytes(Pass::forward);
  const DeviceArray<char> workspace((std::vector<char>(bytes)));
  const DeviceArray<float> x(std::vector<float>(s.x_size(), 1)), w(std::vector<float>(s.w_size(), 1)),
      y(std::vector<float>(s.y_size(), 1));
  const auto run = [&] {
    return category(p.run(Pass::forward, 1, x.get(), w.get(), y.get(), 0, workspace.get(), bytes));
  };
  EXPECT_EQ(run(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(category(p.run(Pass::forward, 1, nullptr, w.get(), y.get(), 0, workspace.get(), bytes)),
            CUDNN_STATUS_BAD_PARAM);
  if (bytes > 0) {
    EXPECT_EQ(category(p.run(Pass::forward, 1, x.get(), w.get(), y.get(), 0, workspace.get(), bytes - 1)),
              CUDNN_STATUS_BAD_PARAM);
  }
  LOCKSTEP_CUDNN(cudnnSetFilter4dDescriptor(p.w, CUDNN_DATA_FLOAT, s.format, 4, 2, 3, 3));
  EXPECT_EQ(run(), CUDNN_STATUS_BAD_PARAM) << "channels of x and w differ";
  LOCKSTEP_CUDNN(cudnnSetFilter4dDescriptor(p.w, CUDNN_DATA_FLOAT, s.format, 4, 3, 3, 3));
  LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(p.y, s.format, CUDNN_DATA_FLOAT, 2, 4, 7, 8));
  EXPECT_EQ(run(), CUDNN_STATUS_BAD_PARAM) << "y has the wrong height";
  EXPECT_EQ(category(cudnnSetTensor4dDescriptor(p.x, s.format, CUDNN_DATA_FLOAT, 2, -3, 8, 8)),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(category(cudnnSetConvolution2dDescriptor(p.convolution, -1, 0, 1, 1, 1, 1,
                                                     CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(category(cudnnSetConvolution2dDescriptor(p.convolution, 0, 0, 0, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                                     CUDNN_DATA_FLOAT)),
            CUDNN_STATUS_BAD_PARAM);
}

TEST(CudnnConvolution, RefusesNhwcFiltersWithNchwTensors) {
  const Problem p({2, 3, 8, 8, 4, 3, 3, 1, 1});
  LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(p.x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 8, 8));
  LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(p.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 8, 8));
  size_t bytes = 0;
  EXPECT_EQ(category(cudnnGetConvolutionForwardWorkspaceSize(p.handle, p.x, p.w, p.convolution, p.y,
                                                             p.forward, &bytes)),
            CUDNN_STATUS_NOT_SUPPORTED);
}

TEST(CudnnDescriptors, GiveBackWhatWasSet) {
  const Problem p({2, 3, 8, 9, 4, 5, 7, 1, 1});
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  int n, c, h, w, n_stride, c_stride, h_stride, w_stride;
  LOCKSTEP_CUDNN(
      cudnnGetTensor4dDescriptor(p.x, &type, &n, &c, &h, &w, &n_stride, &c_stride, &h_stride, &w_stride));
  EXPECT_EQ((std::vector<int>{n, c, h, w, n_stride, c_stride, h_stride, w_stride}),
            (std::vector<int>{2, 3, 8, 9, 8 * 9 * 3, 1, 9 * 3, 3}));
  LOCKSTEP_CUDNN(cudnnGetFilter4dDescriptor(p.w, &type, &format, &n, &c, &h, &w));
  EXPECT_EQ((std::vector<int>{n, c, h, w}), (std::vector<int>{4, 3, 5, 7}));
  EXPECT_EQ(format, CUDNN_TENSOR_NHWC);
  cudnnMathType_t math;
  LOCKSTEP_CUDNN(cudnnGetConvolutionMathType(p.convolution, &math));
  EXPECT_EQ(math, CUDNN_FMA_MATH);
}

}  // namespace
