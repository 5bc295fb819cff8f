// GFLOP/s of the cuDNN convolution calls on the shapes of ResNet-18 and of LeNet's variants, NHWC, all three
// passes. A multiplication and an addition count as two operations, padding included.
#include <benchmark/benchmark.h>
#include <cudnn.h>

#include <string>
#include <utility>

#include "kernels/check.h"

namespace {

struct Shape {
  const char* name;
  int n, c, size, k, kernel, padding, stride;

  int out() const { return (size + 2 * padding - kernel) / stride + 1; }
  double operations() const { return 2.0 * n * k * out() * out() * c * kernel * kernel; }
};

constexpr Shape kShapes[] = {
    {"resnet18/stem", 64, 1, 28, 64, 3, 1, 1},          {"resnet18/64@28", 64, 64, 28, 64, 3, 1, 1},
    {"resnet18/64@28to128", 64, 64, 28, 128, 3, 1, 2},  {"resnet18/64@28to128/1x1", 64, 64, 28, 128, 1, 0, 2},
    {"resnet18/128@14", 64, 128, 14, 128, 3, 1, 1},     {"resnet18/256@7", 64, 256, 7, 256, 3, 1, 1},
    {"resnet18/512@4", 64, 512, 4, 512, 3, 1, 1},       {"lenet_article/1to6", 256, 1, 28, 6, 5, 0, 1},
    {"lenet_article/6to16", 256, 6, 12, 16, 5, 0, 1},   {"lenet_chapter/1to20", 256, 1, 28, 20, 3, 0, 1},
    {"lenet_chapter/20to50", 256, 20, 13, 50, 5, 0, 1},
};

enum class Pass { forward, backward_data, backward_filter };

// Zeroed device memory.
void* device_memory(size_t bytes) {
  void* memory = nullptr;
  LOCKSTEP_CUDA(cudaMalloc(&memory, bytes + 1));
  LOCKSTEP_CUDA(cudaMemset(memory, 0, bytes));
  return memory;
}

void convolve(benchmark::State& state, Shape s, Pass pass) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x, y;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t convolution;
  LOCKSTEP_CUDNN(cudnnCreate(&handle));
  LOCKSTEP_CUDNN(cudnnCreateTensorDescriptor(&x));
  LOCKSTEP_CUDNN(cudnnCreateTensorDescriptor(&y));
  LOCKSTEP_CUDNN(cudnnCreateFilterDescriptor(&w));
  LOCKSTEP_CUDNN(cudnnCreateConvolutionDescriptor(&convolution));
  const auto format = CUDNN_TENSOR_NHWC;
  LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(x, format, CUDNN_DATA_FLOAT, s.n, s.c, s.size, s.size));
  LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(y, format, CUDNN_DATA_FLOAT, s.n, s.k, s.out(), s.out()));
  LOCKSTEP_CUDNN(cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, format, s.k, s.c, s.kernel, s.kernel));
  LOCKSTEP_CUDNN(cudnnSetConvolution2dDescriptor(convolution, s.padding, s.padding, s.stride, s.stride, 1, 1,
                                                 CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  LOCKSTEP_CUDNN(cudnnSetConvolutionMathType(convolution, CUDNN_FMA_MATH));
  constexpr auto forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  constexpr auto data = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
  constexpr auto filter = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
  size_t bytes = 0;
  if (pass == Pass::forward)
    LOCKSTEP_CUDNN(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y, forward, &bytes));
  else if (pass == Pass::backward_data)
    LOCKSTEP_CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w, y, convolution, x, data, &bytes));
  else
    LOCKSTEP_CUDNN(
        cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, convolution, w, filter, &bytes));
  void* const workspace = device_memory(bytes);
  void* const x_data = device_memory(sizeof(float) * s.n * s.c * s.size * s.size);
  void* const w_data = device_memory(sizeof(float) * s.k * s.c * s.kernel * s.kernel);
  void* const y_data = device_memory(sizeof(float) * s.n * s.k * s.out() * s.out());
  const float one = 1, zero = 0;
  const auto run = [&] {
    if (pass == Pass::forward)
      LOCKSTEP_CUDNN(cudnnConvolutionForward(handle, &one, x, x_data, w, w_data, convolution, forward,
                                             workspace, bytes, &zero, y, y_data));
    else if (pass == Pass::backward_data)
      LOCKSTEP_CUDNN(cudnnConvolutionBackwardData(handle, &one, w, w_data, y, y_data, convolution, data,
                                                  workspace, bytes, &zero, x, x_data));
    else
      LOCKSTEP_CUDNN(cudnnConvolutionBackwardFilter(handle, &one, x, x_data, y, y_data, convolution, filter,
                                                    workspace, bytes, &zero, w, w_data));
    LOCKSTEP_CUDA(cudaDeviceSynchronize());
  };
  run();
  for (auto _ : state) run();
  state.counters["GFLOP/s"] =
      benchmark::Counter(s.operations() / 1e9, benchmark::Counter::kIsIterationInvariantRate);
  for (void* memory : {workspace, x_data, w_data, y_data}) cudaFree(memory);
  cudnnDestroyConvolutionDescriptor(convolution);
  cudnnDestroyFilterDescriptor(w);
  cudnnDestroyTensorDescriptor(y);
  cudnnDestroyTensorDescriptor(x);
  cudnnDestroy(handle);
}

const int kRegistered = [] {
  const std::pair<const char*, Pass> passes[] = {{"forward", Pass::forward},
                                                 {"backward_data", Pass::backward_data},
                                                 {"backward_filter", Pass::backward_filter}};
  for (const Shape& shape : kShapes)
    for (const auto& [name, pass] : passes) {
      // Nobody asks for the gradient of the images.
      if (shape.c == 1 && pass == Pass::backward_data) continue;
      benchmark::RegisterBenchmark((std::string(shape.name) + "/" + name).c_str(), convolve, shape, pass)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  return 0;
}();

}  // namespace
