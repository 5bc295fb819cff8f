// Adaptive average pooling: every output sums its window; backward, every input gathers from the outputs that
// see it. Both intervals have the same form with the roles of the two sizes exchanged.
#include "kernels/adaptive_pool.h"

#include <algorithm>
#include <string>

#include "kernels/channel_lanes.cuh"
#include "kernels/launch.cuh"

namespace lockstep::kernels {

namespace {

constexpr int kMostPixels = 1 << 15;  // of an axis: products of two fit into 32 bits

struct Range {
  int begin, end;
};

}  // namespace

// The indices of an axis of `to` that overlap index i of an axis of `from`, both spanning the same length. In
// 32 bits, whose division costs a GPU a fraction of that in 64.
__device__ inline Range overlapping(int i, int from, int to) {
  const auto begin = static_cast<unsigned>(i) * static_cast<unsigned>(to);
  const auto end = begin + static_cast<unsigned>(to + from - 1);
  return {static_cast<int>(begin / static_cast<unsigned>(from)),
          static_cast<int>(end / static_cast<unsigned>(from))};
}

// Blocks handle `block_rows` rows of outputs, counted through all images.
template <int kThreads, typename T>
__global__ void adaptive_avg_pool2d_forward_kernel(AdaptivePool2dShape s, int64_t rows, int block_rows,
                                                   const T* __restrict__ x, T* __restrict__ y) {
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * block_rows;
  const int64_t last_row = first_row + block_rows < rows ? first_row + block_rows : rows;
  const int64_t row_size = static_cast<int64_t>(s.width) * s.channels;
  for (int64_t row = first_row; row < last_row; ++row) {
    const Range h = overlapping(static_cast<int>(row % s.out_height), s.out_height, s.height);
    const T* image = x + row / s.out_height * s.height * row_size;
    T* y_row = y + row * s.out_width * s.channels;
    for_each_channel<kThreads, false>(s.out_width, s.channels, [=](auto lanes, int column, int channel) {
      using Lanes = decltype(lanes);
      const Range w = overlapping(column, s.out_width, s.width);
      typename Lanes::Floats sum = {};
      for (int r = h.begin; r < h.end; ++r)
        for (int c = w.begin; c < w.end; ++c)
          sum += Lanes::load(image + r * row_size + c * s.channels + channel);
      const float factor = 1.0f / static_cast<float>((h.end - h.begin) * (w.end - w.begin));
      Lanes::store(y_row + column * s.channels + channel, sum * factor);
    });
  }
}

// Rows are rows of inputs.
template <int kThreads, typename T>
__global__ void adaptive_avg_pool2d_backward_kernel(AdaptivePool2dShape s, int64_t rows, int block_rows,
                                                    const T* __restrict__ dy, T* __restrict__ dx) {
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * block_rows;
  const int64_t last_row = first_row + block_rows < rows ? first_row + block_rows : rows;
  const int64_t out_row_size = static_cast<int64_t>(s.out_width) * s.channels;
  for (int64_t row = first_row; row < last_row; ++row) {
    const Range h = overlapping(static_cast<int>(row % s.height), s.height, s.out_height);
    const T* image = dy + row / s.height * s.out_height * out_row_size;
    T* dx_row = dx + row * s.width * s.channels;
    for_each_channel<kThreads, false>(s.width, s.channels, [=](auto lanes, int column, int channel) {
      using Lanes = decltype(lanes);
      const Range w = overlapping(column, s.width, s.out_width);
      typename Lanes::Floats sum = {};
      for (int r = h.begin; r < h.end; ++r) {
        const Range rows_seen = overlapping(r, s.out_height, s.height);
        for (int c = w.begin; c < w.end; ++c) {
          const Range columns_seen = overlapping(c, s.out_width, s.width);
          const int window = (rows_seen.end - rows_seen.begin) * (columns_seen.end - columns_seen.begin);
          sum += Lanes::load(image + r * out_row_size + c * s.channels + channel) *
                 (1.0f / static_cast<float>(window));
        }
      }
      Lanes::store(dx_row + column * s.channels + channel, sum);
    });
  }
}

namespace {

template <typename Kernels, typename T>
void launch_rows(Kernels kernels, const AdaptivePool2dShape& shape, int64_t rows, int64_t row_size,
                 LaunchStream stream, const T* from, T* to) {
  const int longest = std::max({shape.height, shape.width, shape.out_height, shape.out_width});
  if (longest > kMostPixels)
    throw Error("adaptive_avg_pool2d: an axis of " + std::to_string(longest) + ": use at most " +
                std::to_string(kMostPixels));
  if (rows == 0 || row_size == 0) return;
  const int64_t block_rows = kOnGpu ? 1 : std::max<int64_t>(1, 4096 / row_size);
  launch_blocks<128>(kernels, dim3(static_cast<unsigned>((rows + block_rows - 1) / block_rows)), stream,
                     shape, rows, static_cast<int>(block_rows), from, to);
}

}  // namespace

template <typename T>
void adaptive_avg_pool2d_forward(const AdaptivePool2dShape& shape, const T* x, T* y, cudaStream_t stream) {
  launch_rows([](auto threads) { return adaptive_avg_pool2d_forward_kernel<threads(), T>; }, shape,
              shape.batch * shape.out_height, static_cast<int64_t>(shape.out_width) * shape.channels, stream,
              x, y);
}

template <typename T>
void adaptive_avg_pool2d_backward(const AdaptivePool2dShape& shape, const T* dy, T* dx, cudaStream_t stream) {
  launch_rows([](auto threads) { return adaptive_avg_pool2d_backward_kernel<threads(), T>; }, shape,
              shape.batch * shape.height, static_cast<int64_t>(shape.width) * shape.channels, stream, dy, dx);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                      \
  template void adaptive_avg_pool2d_forward(const AdaptivePool2dShape&, const T*, T*, cudaStream_t); \
  template void adaptive_avg_pool2d_backward(const AdaptivePool2dShape&, const T*, T*, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
