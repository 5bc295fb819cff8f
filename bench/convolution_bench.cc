// GFLOP/s of the cuDNN convolution calls on the shapes of ResNet-18 and of LeNet's variants, NHWC, all three
// passes, float32 and bfloat16, by the algorithm that is reported first. A multiplication and an addition
// count as two operations, padding included.
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

void convolve(benchmark::State& state, Shape s, Pass pass, cudnnDataType_t type) {
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
  LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(x, format, type, s.n, s.c, s.size, s.size));
  LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(y, format, type, s.n, s.k, s.out(), s.out()));
  LOCKSTEP_CUDNN(cudnnSetFilter4dDescriptor(w, type, format, s.k, s.c, s.kernel, s.kernel));
  LOCKSTEP_CUDNN(cudnnSetConvolution2dDescriptor(convolution, s.padding, s.padding, s.stride, s.stride, 1, 1,
                                                 CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  LOCKSTEP_CUDNN(cudnnSetConvolutionMathType(convolution,
                                             type == CUDNN_DATA_FLOAT ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH));
  int count = 0;
  size_t bytes = 0;
  cudnnConvolutionFwdAlgoPerf_t forward;
  cudnnConvolutionBwdDataAlgoPerf_t data;
  cudnnConvolutionBwdFilterAlgoPerf_t filter;
  if (pass == Pass::forward) {
    LOCKSTEP_CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, convolution, y, 1, &count, &forward));
    bytes = forward.memory;
  } else if (pass == Pass::backward_data) {
    LOCKSTEP_CUDNN(
        cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, y, convolution, x, 1, &count, &data));
    bytes = data.memory;
  } else {
    LOCKSTEP_CUDNN(
        cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x, y, convolution, w, 1, &count, &filter));
    bytes = filter.memory;
  }
  void* const workspace = device_memory(bytes);
  void* const x_data = device_memory(sizeof(float) * s.n * s.c * s.size * s.size);
  void* const w_data = device_memory(sizeof(float) * s.k * s.c * s.kernel * s.kernel);
  void* const y_data = device_memory(sizeof(float) * s.n * s.k * s.out() * s.out());
  const float one = 1, zero = 0;
  const auto run = [&] {
    if (pass == Pass::forward)
      LOCKSTEP_CUDNN(cudnnConvolutionForward(handle, &one, x, x_data, w, w_data, convolution, forward.algo,
                                             workspace, bytes, &zero, y, y_data));
    else if (pass == Pass::backward_data)
      LOCKSTEP_CUDNN(cudnnConvolutionBackwardData(handle, &one, w, w_data, y, y_data, convolution, data.algo,
                                                  workspace, bytes, &zero, x, x_data));
    else
      LOCKSTEP_CUDNN(cudnnConvolutionBackwardFilter(handle, &one, x, x_data, y, y_data, convolution,
                                                    filter.algo, workspace, bytes, &zero, w, w_data));
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
      for (const auto& [type, type_name] :
           {std::pair{CUDNN_DATA_FLOAT, "float32"}, std::pair{CUDNN_DATA_BFLOAT16, "bfloat16"}})
        benchmark::RegisterBenchmark((std::string(shape.name) + "/" + name + "/" + type_name).c_str(),
                                     convolve, shape, pass, type)
            ->MeasureProcessCPUTime()
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond)
            ->MinTime(0.05);
    }
  return 0;
}();

}  // namespace
