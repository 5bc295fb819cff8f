// GFLOP/s of every pass of LeNet's convolutions at batch 256 and of ResNet-18's at batch 64: cuDNN's first
// deterministic algorithm and, where channels are few, the direct kernel. This is what the limit in
// kernels/conv/conv.cu, up to which the direct kernel is chosen, rests on. HOSTCUDA_THREADS=1 for one core.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/check.h"
#include "kernels/conv/conv_paths.h"

namespace {

using namespace lockstep::kernels;

struct Layer {
  const char* name;
  Conv2dShape shape;
};

constexpr Layer kLayers[] = {
    {"1to6_5x5", {256, 28, 28, 1, 6, 5, 5, 1, 0}},
    {"6to16_5x5", {256, 12, 12, 6, 16, 5, 5, 1, 0}},
    {"1to6_5x5_padded", {256, 28, 28, 1, 6, 5, 5, 1, 2}},
    {"6to16_5x5_at14", {256, 14, 14, 6, 16, 5, 5, 1, 0}},
    {"1to20_3x3", {256, 28, 28, 1, 20, 3, 3, 1, 0}},
    {"20to50_5x5", {256, 13, 13, 20, 50, 5, 5, 1, 0}},
    {"32to32_3x3", {256, 14, 14, 32, 32, 3, 3, 1, 1}},
};

// ResNet-18's on 28x28 images, with how often each occurs.
constexpr Layer kResNetLayers[] = {
    {"stem_1to64_3x3_at28", {64, 28, 28, 1, 64, 3, 3, 1, 1}},
    {"4x_64_3x3_at28", {64, 28, 28, 64, 64, 3, 3, 1, 1}},
    {"3x_128_3x3_at14", {64, 14, 14, 128, 128, 3, 3, 1, 1}},
    {"3x_256_3x3_at7", {64, 7, 7, 256, 256, 3, 3, 1, 1}},
    {"3x_512_3x3_at4", {64, 4, 4, 512, 512, 3, 3, 1, 1}},
    {"64to128_3x3_stride2", {64, 28, 28, 64, 128, 3, 3, 2, 1}},
    {"128to256_3x3_stride2", {64, 14, 14, 128, 256, 3, 3, 2, 1}},
    {"256to512_3x3_stride2", {64, 7, 7, 256, 512, 3, 3, 2, 1}},
    {"64to128_1x1_stride2", {64, 28, 28, 64, 128, 1, 1, 2, 0}},
    {"128to256_1x1_stride2", {64, 14, 14, 128, 256, 1, 1, 2, 0}},
    {"256to512_1x1_stride2", {64, 7, 7, 256, 512, 1, 1, 2, 0}},
};

// Device memory for one pass: operands, result and workspace.
class Buffer {
 public:
  explicit Buffer(size_t bytes) {
    LOCKSTEP_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<size_t>(bytes, 4)));
    LOCKSTEP_CUDA(cudaMemset(data_, 0, bytes));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }
  float* data() const { return data_; }

 private:
  float* data_ = nullptr;
};

void run(benchmark::State& state, const Conv2dShape& s, ConvPass pass, const ConvPath<float>& path) {
  MathContext context{Math::library, nullptr, nullptr, nullptr};
  LOCKSTEP_CUDA(cudaStreamCreate(&context.stream));
  LOCKSTEP_CUDNN(cudnnCreate(&context.cudnn));
  LOCKSTEP_CUDNN(cudnnSetStream(context.cudnn, context.stream));
  const Buffer x(static_cast<size_t>(s.input_size()) * 4), w(static_cast<size_t>(s.weight_size()) * 4);
  const Buffer y(static_cast<size_t>(s.output_size()) * 4);
  const Buffer workspace(path.workspace_bytes(context, s, pass));
  for (auto _ : state) {
    if (pass == ConvPass::forward)
      path.forward(context, s, x.data(), w.data(), nullptr, y.data(), workspace.data());
    else if (pass == ConvPass::backward_data)
      path.backward_data(context, s, y.data(), w.data(), x.data(), workspace.data());
    else
      path.backward_filter(context, s, x.data(), y.data(), w.data(), workspace.data());
    LOCKSTEP_CUDA(cudaStreamSynchronize(context.stream));
  }
  const double operations = 2.0 * static_cast<double>(s.batch) * s.out_height() * s.out_width() *
                            static_cast<double>(s.weight_size());
  state.counters["GFLOP/s"] =
      benchmark::Counter(operations / 1e9, benchmark::Counter::kIsIterationInvariantRate);
  cudnnDestroy(context.cudnn);
  cudaStreamDestroy(context.stream);
}

void register_layer(const Layer& layer, bool with_direct) {
  for (const auto& [pass, name] :
       {std::pair{ConvPass::forward, "forward"}, std::pair{ConvPass::backward_data, "backward_data"},
        std::pair{ConvPass::backward_filter, "backward_filter"}})
    for (const ConvPath<float>* path : {&conv2d_direct_path(), &conv2d_library_path<float>()})
      if (path != &conv2d_direct_path() || with_direct)
        benchmark::RegisterBenchmark((std::string(layer.name) + "/" + name + "/" + path->name).c_str(),
                                     [shape = layer.shape, pass = pass, path](benchmark::State& state) {
                                       run(state, shape, pass, *path);
                                     })
            ->MeasureProcessCPUTime()
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond)
            ->MinTime(0.05);
}

const bool registered = [] {
  for (const Layer& layer : kLayers) register_layer(layer, true);
  for (const Layer& layer : kResNetLayers) register_layer(layer, layer.shape.in_channels == 1);
  return true;
}();

}  // namespace
