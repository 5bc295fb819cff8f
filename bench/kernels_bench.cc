// The memory-bound kernels at the sizes that LeNet (batch 256) and a ResNet-like network (batch 32) use.
// Bytes per second count every array once a pass over it: compare them with the machine's copy bandwidth.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "kernels/activation.h"
#include "kernels/adam.h"
#include "kernels/augment.h"
#include "kernels/bias.h"
#include "kernels/check.h"
#include "kernels/clip.h"
#include "kernels/elementwise.h"
#include "kernels/gather.h"
#include "kernels/pool.h"
#include "kernels/random.h"
#include "kernels/reduce.h"
#include "kernels/sgd.h"
#include "kernels/softmax.h"

namespace {

using namespace lockstep;
using namespace lockstep::kernels;

// Device memory for the time of one benchmark.
template <typename T>
class Array {
 public:
  explicit Array(int64_t n) { LOCKSTEP_CUDA(cudaMalloc(&data_, static_cast<size_t>(n) * sizeof(T))); }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  operator T*() const { return data_; }

 private:
  T* data_ = nullptr;
};

class Stream {
 public:
  Stream() { LOCKSTEP_CUDA(cudaStreamCreate(&stream_)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

struct Floats : Array<float> {
  Floats(int64_t n, cudaStream_t stream) : Array<float>(n) { random_normal(*this, n, 0, 1, 1, 0, stream); }
};

// What a sum of many blocks needs.
struct Scratch {
  Scratch(size_t bytes, cudaStream_t stream) : workspace(static_cast<int64_t>(bytes)), tickets(kTickets) {
    LOCKSTEP_CUDA(cudaMemsetAsync(tickets, 0, kTickets * sizeof(unsigned), stream));
  }
  operator SumScratch() const { return {workspace, tickets}; }
  Array<uint8_t> workspace;
  Array<unsigned> tickets;
};

// The list of one parameter for an optimizer's update.
struct List {
  List(const UpdateChunk& whole, int64_t n) : List(chunks_of(whole, n)) {}
  operator UpdateList() const { return {memory, count}; }
  Array<UpdateChunk> memory;
  int64_t count;

 private:
  explicit List(const std::vector<UpdateChunk>& chunks)
      : memory(static_cast<int64_t>(chunks.size())), count(static_cast<int64_t>(chunks.size())) {
    LOCKSTEP_CUDA(
        cudaMemcpy(memory, chunks.data(), chunks.size() * sizeof(UpdateChunk), cudaMemcpyHostToDevice));
  }
  static std::vector<UpdateChunk> chunks_of(const UpdateChunk& whole, int64_t n) {
    std::vector<UpdateChunk> chunks;
    append_chunks(whole, n, chunks);
    return chunks;
  }
};

// Times `enqueue` with the device idle before and after, and reports the bytes it moves.
template <typename F>
void measure(benchmark::State& state, cudaStream_t stream, int64_t bytes, F enqueue) {
  LOCKSTEP_CUDA(cudaStreamSynchronize(stream));
  for (auto _ : state) {
    enqueue();
    LOCKSTEP_CUDA(cudaStreamSynchronize(stream));
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

void fill_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Stream stream;
  const Floats x(n, stream);
  measure(state, stream, 4 * n, [&] { fill<float>(x, 1, n, stream); });
}

void add_into_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Stream stream;
  const Floats x(n, stream), y(n, stream);
  measure(state, stream, 12 * n, [&] { add_into<float>(y, x, n, stream); });
}

void scale_by_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Stream stream;
  const Floats x(n, stream), y(n, stream), factor(1, stream);
  measure(state, stream, 8 * n, [&] { scale_by<float>(x, factor, y, n, stream); });
}

template <typename F>
void activation_forward_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Stream stream;
  const Floats x(n, stream), y(n, stream);
  measure(state, stream, 8 * n, [&] { activation_forward<F, float>(x, y, n, stream); });
}

template <typename F>
void activation_backward_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Stream stream;
  const Floats kept(n, stream), dy(n, stream), dx(n, stream);
  measure(state, stream, 12 * n, [&] { activation_backward<F, float>(kept, dy, dx, n, stream); });
}

void sgd_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Stream stream;
  const Floats w(n, stream), g(n, stream), v(n, stream);
  const SgdSettings settings{
      .learning_rate = 1e-6f, .momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true};
  const List list({w, g, v, nullptr, nullptr, 0, false, 1.0f}, n);
  measure(state, stream, 20 * n, [&] { sgd_update(settings, list, {}, stream); });
}

void adam_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Stream stream;
  const Floats w(n, stream), g(n, stream), m(n, stream), v(n, stream);
  const AdamSettings settings{.learning_rate = 1e-6f, .weight_decay = 5e-4f, .decoupled = true};
  const List list({w, g, m, v, nullptr, 0, false, 1.0f}, n);
  measure(state, stream, 28 * n, [&] { adam_update(settings, 10, list, {}, stream); });
}

// Gradients that are short enough, and gradients that are scaled: a limit that is NaN scales them every time.
void clip_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const bool longer = state.range(1) != 0;
  const Stream stream;
  const Floats x(n, stream), norm(1, stream);
  const Scratch scratch(norm_for_clip_workspace_bytes(n), stream);
  measure(state, stream, (longer ? 12 : 4) * n, [&] {
    norm_for_clip(x, n, 1, norm, scratch, stream);
    scale_by_clip(x, n, longer ? __builtin_nanf("") : 1e30f, norm, stream);
  });
}

void reduce_sum_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Stream stream;
  const Floats x(n, stream), sum(1, stream);
  const Scratch scratch(reduce_sum_workspace_bytes(n), stream);
  measure(state, stream, 4 * n, [&] { reduce_sum(x, n, 1, sum, scratch, stream); });
}

// Elements that stay in the first-level cache, LeNet's convolution outputs, a ResNet-like activation.
void element_sizes(benchmark::internal::Benchmark* b) {
  b->Arg(2048)->Arg(256 * 8 * 8 * 16)->Arg(256 * 24 * 24 * 6)->Arg(32 * 56 * 56 * 64);
}
BENCHMARK(fill_bench)->Apply(element_sizes)->UseRealTime();
BENCHMARK(add_into_bench)->Apply(element_sizes)->UseRealTime();
BENCHMARK(scale_by_bench)->Apply(element_sizes)->UseRealTime();
#define LOCKSTEP_BENCHMARK(function, F)                                                     \
  BENCHMARK(activation_forward_bench<activations::F>)->Apply(element_sizes)->UseRealTime(); \
  BENCHMARK(activation_backward_bench<activations::F>)->Apply(element_sizes)->UseRealTime();
LOCKSTEP_ACTIVATIONS(LOCKSTEP_BENCHMARK)
#undef LOCKSTEP_BENCHMARK
BENCHMARK(adam_bench)->Apply(element_sizes)->UseRealTime();
BENCHMARK(clip_bench)->ArgsProduct({{44426, 11175818}, {0, 1}})->UseRealTime();  // LeNet, ResNet-18
BENCHMARK(reduce_sum_bench)->Apply(element_sizes)->UseRealTime();
BENCHMARK(sgd_bench)->Arg(44426)->Arg(11173962)->UseRealTime();

void bias_add_bench(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int channels = static_cast<int>(state.range(1));
  const Stream stream;
  const Floats y(rows * channels, stream), bias(channels, stream);
  measure(state, stream, 8 * rows * channels, [&] { bias_add<float>(y, bias, rows, channels, stream); });
}

void bias_gradient_bench(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int channels = static_cast<int>(state.range(1));
  const Stream stream;
  const Floats dy(rows * channels, stream), dbias(channels, stream);
  const Scratch scratch(bias_gradient_workspace_bytes(rows, channels), stream);
  measure(state, stream, 4 * rows * channels,
          [&] { bias_gradient<float>(dy, dbias, rows, channels, scratch, stream); });
}

void bias_sizes(benchmark::internal::Benchmark* b) {
  b->Args({256 * 24 * 24, 6})->Args({256 * 8 * 8, 16})->Args({256, 120})->Args({256, 84})->Args({256, 10});
  b->Args({32 * 56 * 56, 64});
}
BENCHMARK(bias_add_bench)->Apply(bias_sizes)->UseRealTime();
BENCHMARK(bias_gradient_bench)->Apply(bias_sizes)->UseRealTime();

// Arguments: batch, extent, channels, kernel, stride, padding.
Pool2dShape pool_shape(const benchmark::State& state) {
  const auto at = [&](int i) { return static_cast<int>(state.range(i)); };
  return {state.range(0), at(1), at(1), at(2), at(3), at(4), at(5)};
}

void max_pool_forward_bench(benchmark::State& state) {
  const Pool2dShape shape = pool_shape(state);
  const Stream stream;
  const Floats x(shape.input_size(), stream), y(shape.output_size(), stream);
  const Array<uint8_t> argmax(shape.output_size());
  measure(state, stream, 4 * shape.input_size() + 5 * shape.output_size(),
          [&] { max_pool2d_forward<float>(shape, x, y, argmax, stream); });
}

void max_pool_backward_bench(benchmark::State& state) {
  const Pool2dShape shape = pool_shape(state);
  const Stream stream;
  const Floats x(shape.input_size(), stream), y(shape.output_size(), stream);
  const Array<uint8_t> argmax(shape.output_size());
  max_pool2d_forward<float>(shape, x, y, argmax, stream);
  measure(state, stream, 4 * shape.input_size() + 5 * shape.output_size(),
          [&] { max_pool2d_backward<float>(shape, y, argmax, x, stream); });
}

void avg_pool_forward_bench(benchmark::State& state) {
  const Pool2dShape shape = pool_shape(state);
  const Stream stream;
  const Floats x(shape.input_size(), stream), y(shape.output_size(), stream);
  measure(state, stream, 4 * (shape.input_size() + shape.output_size()),
          [&] { avg_pool2d_forward<float>(shape, x, y, stream); });
}

void avg_pool_backward_bench(benchmark::State& state) {
  const Pool2dShape shape = pool_shape(state);
  const Stream stream;
  const Floats x(shape.input_size(), stream), y(shape.output_size(), stream);
  measure(state, stream, 4 * (shape.input_size() + shape.output_size()),
          [&] { avg_pool2d_backward<float>(shape, y, x, stream); });
}

void pool_sizes(benchmark::internal::Benchmark* b) {
  b->Args({256, 24, 6, 2, 2, 0})->Args({256, 8, 16, 2, 2, 0})->Args({256, 26, 20, 2, 2, 0});
  b->Args({32, 56, 64, 2, 2, 0})->Args({32, 56, 64, 3, 2, 1});
}
BENCHMARK(max_pool_forward_bench)->Apply(pool_sizes)->UseRealTime();
BENCHMARK(max_pool_backward_bench)->Apply(pool_sizes)->UseRealTime();
BENCHMARK(avg_pool_forward_bench)->Apply(pool_sizes)->UseRealTime();
BENCHMARK(avg_pool_backward_bench)->Apply(pool_sizes)->UseRealTime();

// A zeroed array of labels: valid for every number of classes.
struct Labels : Array<int32_t> {
  Labels(int64_t n, cudaStream_t stream) : Array<int32_t>(n) {
    LOCKSTEP_CUDA(cudaMemsetAsync(*this, 0, static_cast<size_t>(n) * sizeof(int32_t), stream));
  }
};

void softmax_bench(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int classes = static_cast<int>(state.range(1));
  const Stream stream;
  const Floats logits(rows * classes, stream), gradient(rows * classes, stream), loss(rows, stream);
  const Labels labels(rows, stream);
  const Array<LabelFault> fault(1);
  measure(state, stream, 8 * rows * (classes + 1), [&] {
    softmax_cross_entropy<float>(logits, labels, rows, classes, 0, 1, loss, gradient, fault, stream);
  });
}
BENCHMARK(softmax_bench)->Args({256, 10})->Args({256, 1000})->UseRealTime();

void count_correct_bench(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int classes = static_cast<int>(state.range(1));
  const Stream stream;
  const Floats logits(rows * classes, stream);
  const Labels labels(rows, stream), correct(1, stream);
  const Array<LabelFault> fault(1);
  measure(state, stream, 4 * rows * (classes + 1),
          [&] { count_correct<float>(logits, labels, rows, classes, correct, fault, stream); });
}
BENCHMARK(count_correct_bench)->Args({256, 10})->Args({256, 1000})->UseRealTime();

void gather_bench(benchmark::State& state) {
  const int64_t rows = 256;
  const int pixels = 784;
  const Stream stream;
  const Array<uint8_t> images(rows * pixels), labels(rows);
  LOCKSTEP_CUDA(cudaMemsetAsync(images, 1, rows * pixels, stream));
  LOCKSTEP_CUDA(cudaMemsetAsync(labels, 1, rows, stream));
  const Labels order(rows, stream), y(rows, stream);
  const Floats x(rows * pixels, stream);
  measure(state, stream, rows * (5 * pixels + 9),
          [&] { gather_batch(images, labels, order, rows, pixels, 0.3f, 0.4f, x, y, stream); });
}
BENCHMARK(gather_bench)->UseRealTime();

void augment_bench(benchmark::State& state) {
  const int64_t rows = 256;
  const int side = 28, pixels = side * side;
  const Stream stream;
  const Array<uint8_t> images(rows * pixels), labels(rows);
  LOCKSTEP_CUDA(cudaMemsetAsync(images, 1, rows * pixels, stream));
  LOCKSTEP_CUDA(cudaMemsetAsync(labels, 1, rows, stream));
  const Labels order(rows, stream), y(rows, stream);
  const Floats x(rows * pixels, stream);
  const Augmentation all{.padding = 4, .flip = true, .cutout = 8};
  measure(state, stream, rows * (5 * pixels + 9), [&] {
    augment_batch(images, labels, order, rows, side, side, 0.3f, 0.4f, all, 1, 2, x, y, stream);
  });
}
BENCHMARK(augment_bench)->UseRealTime();

void random_normal_bench(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Stream stream;
  const Floats x(n, stream);
  measure(state, stream, 4 * n, [&] { random_normal(x, n, 0, 1, 1, 0, stream); });
}
BENCHMARK(random_normal_bench)->Arg(44426)->Arg(1 << 20)->UseRealTime();

}  // namespace
