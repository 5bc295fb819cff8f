// Pooling: one set of kernels for maximum and average. Forward, every output looks at its window; backward,
// every input looks at the windows that cover it, so that nothing is added to twice. Windows of 2 x 2 that
// tile the image have their own way back: every output writes its four inputs.
#include "kernels/pool.h"

#include <algorithm>
#include <string>

#include "kernels/channel_lanes.cuh"
#include "kernels/check.h"

namespace lockstep::kernels {

namespace {

enum class Pooling { max, average };

struct PoolGeometry {
  int height, width, channels, kernel, stride, padding, out_height, out_width;
  uint64_t stride_reciprocal;  // 2^40 / stride, rounded up

  explicit PoolGeometry(const Pool2dShape& s)
      : height(s.height),
        width(s.width),
        channels(s.channels),
        kernel(s.kernel),
        stride(s.stride),
        padding(s.padding),
        out_height(s.out_height()),
        out_width(s.out_width()),
        stride_reciprocal(((uint64_t{1} << 40) + static_cast<uint64_t>(s.stride) - 1) /
                          static_cast<uint64_t>(s.stride)) {}

  // n / stride without a division: exact while n < 2^24 and n * stride < 2^40, since the reciprocal is off by
  // less than 1 and the quotient so by less than n / 2^40 < 1 / stride.
  __device__ int by_stride(int n) const {
    return static_cast<int>((static_cast<uint64_t>(n) * stride_reciprocal) >> 40);
  }
};

constexpr int kMostPixels = 1 << 19;  // of an axis, and of a stride

// An interval of indices, and the index that counts as 0 within it.
struct Interval {
  int begin, end, origin;
};

}  // namespace

// The inputs of one axis that output `out` sees. kTile > 0: windows of that size that tile the image.
template <int kTile>
__device__ Interval inputs_of(const PoolGeometry& g, int out, int extent) {
  if constexpr (kTile > 0) {
    return {out * kTile, out * kTile + kTile, out * kTile};
  } else {
    const int origin = out * g.stride - g.padding;
    return {origin > 0 ? origin : 0, origin + g.kernel < extent ? origin + g.kernel : extent, origin};
  }
}

// The outputs of one axis that see input `in`; their windows' offset to it is in + padding - out * stride.
__device__ inline Interval outputs_of(const PoolGeometry& g, int in, int out_extent) {
  const int reach = in + g.padding;
  const int first = reach < g.kernel ? 0 : g.by_stride(reach - g.kernel) + 1;
  const int last = g.by_stride(reach);
  return {first, last < out_extent ? last + 1 : out_extent, reach};
}

// Blocks handle `block_rows` rows of outputs each, counted through all images.
template <int kThreads, typename T, int kTile, Pooling kPooling>
__global__ void pool2d_forward_kernel(PoolGeometry g, int64_t rows, int block_rows, const T* __restrict__ x,
                                      T* __restrict__ y, uint8_t* __restrict__ argmax) {
  const int kernel = kTile > 0 ? kTile : g.kernel;
  const int64_t row_size = static_cast<int64_t>(g.width) * g.channels;
  const int64_t out_row_size = static_cast<int64_t>(g.out_width) * g.channels;
  const float factor = 1.0f / static_cast<float>(kernel * kernel);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * block_rows;
  const int64_t last_row = first_row + block_rows < rows ? first_row + block_rows : rows;
  for (int64_t row = first_row; row < last_row; ++row) {
    const T* image = x + row / g.out_height * g.height * row_size;
    const Interval h = inputs_of<kTile>(g, static_cast<int>(row % g.out_height), g.height);
    const int h_count = kTile > 0 ? kTile : h.end - h.begin;
    T* y_row = y + row * out_row_size;
    uint8_t* argmax_row = argmax + row * out_row_size;
    for_each_channel<kThreads, (kTile > 0)>(
        g.out_width, g.channels, [=](auto lanes, int column, int channel) {
          using Lanes = decltype(lanes);
          const Interval w = inputs_of<kTile>(g, column, g.width);
          const int w_count = kTile > 0 ? kTile : w.end - w.begin;
          [[maybe_unused]] const int first = (h.begin - h.origin) * kernel + (w.begin - w.origin);
          const T* corner = image + h.begin * row_size + w.begin * g.channels + channel;
          const int64_t out = column * g.channels + channel;
          typename Lanes::Floats value = {};
          typename Lanes::Ints where = {};
          if constexpr (kPooling == Pooling::max) {
            value -= __builtin_huge_valf();
            where += first;
          }
          for (int r = 0; r < h_count; ++r) {
            for (int c = 0; c < w_count; ++c) {
              const typename Lanes::Floats v = Lanes::load(corner + r * row_size + c * g.channels);
              if constexpr (kPooling == Pooling::max) {
                const auto larger = (v > value) | (v != v);  // a NaN wins, and is not beaten by a number
                value = larger ? v : value;
                where = larger ? typename Lanes::Ints{} + (first + r * kernel + c) : where;
              } else {
                value += v;
              }
            }
          }
          if constexpr (kPooling == Pooling::max)
            Lanes::store_bytes(argmax_row + out, where);
          else
            value *= factor;
          Lanes::store(y_row + out, value);
        });
  }
}

// Any windows: each input gathers from the outputs that see it. Rows are rows of inputs.
template <int kThreads, typename T, Pooling kPooling>
__global__ void pool2d_backward_kernel(PoolGeometry g, int64_t rows, int block_rows, const T* __restrict__ dy,
                                       const uint8_t* __restrict__ argmax, T* __restrict__ dx) {
  const int64_t row_size = static_cast<int64_t>(g.width) * g.channels;
  const int64_t out_row_size = static_cast<int64_t>(g.out_width) * g.channels;
  const float factor = 1.0f / static_cast<float>(g.kernel * g.kernel);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * block_rows;
  const int64_t last_row = first_row + block_rows < rows ? first_row + block_rows : rows;
  for (int64_t row = first_row; row < last_row; ++row) {
    const int64_t image = row / g.height * g.out_height * out_row_size;
    const Interval h = outputs_of(g, static_cast<int>(row % g.height), g.out_height);
    T* dx_row = dx + row * row_size;
    for_each_channel<kThreads, false>(g.width, g.channels, [=](auto lanes, int column, int channel) {
      using Lanes = decltype(lanes);
      const Interval w = outputs_of(g, column, g.out_width);
      typename Lanes::Floats sum = {};
      for (int r = h.begin; r < h.end; ++r) {
        for (int c = w.begin; c < w.end; ++c) {
          const int64_t out = image + r * out_row_size + c * g.channels + channel;
          const typename Lanes::Floats gradient = Lanes::load(dy + out);
          if constexpr (kPooling == Pooling::max) {
            const int here = (h.origin - r * g.stride) * g.kernel + (w.origin - c * g.stride);
            sum += Lanes::load_bytes(argmax + out) == here ? gradient : typename Lanes::Floats{};
          } else {
            sum += gradient;
          }
        }
      }
      if constexpr (kPooling == Pooling::average) sum *= factor;
      Lanes::store(dx_row + column * g.channels + channel, sum);
    });
  }
}

// Windows that tile the image: each output writes its own inputs. Rows are rows of outputs; the inputs that
// no window covers, right and below, are set to 0 by the row beside them.
template <int kThreads, typename T, int kTile, Pooling kPooling>
__global__ void pool2d_backward_tiles_kernel(PoolGeometry g, int64_t rows, int block_rows,
                                             const T* __restrict__ dy, const uint8_t* __restrict__ argmax,
                                             T* __restrict__ dx) {
  const int64_t row_size = static_cast<int64_t>(g.width) * g.channels;
  const int64_t out_row_size = static_cast<int64_t>(g.out_width) * g.channels;
  constexpr float kFactor = 1.0f / (kTile * kTile);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * block_rows;
  const int64_t last_row = first_row + block_rows < rows ? first_row + block_rows : rows;
  for (int64_t row = first_row; row < last_row; ++row) {
    const int out_h = static_cast<int>(row % g.out_height);
    T* corner_row = dx + (row / g.out_height * g.height + out_h * kTile) * row_size;
    for_each_channel<kThreads, true>(g.out_width, g.channels, [=](auto lanes, int column, int channel) {
      using Lanes = decltype(lanes);
      const int64_t out = row * out_row_size + column * g.channels + channel;
      const typename Lanes::Floats gradient = Lanes::load(dy + out);
      typename Lanes::Ints where = {};
      if constexpr (kPooling == Pooling::max) where = Lanes::load_bytes(argmax + out);
      T* corner = corner_row + column * kTile * g.channels + channel;
      for (int r = 0; r < kTile; ++r) {
        for (int c = 0; c < kTile; ++c) {
          T* target = corner + r * row_size + c * g.channels;
          if constexpr (kPooling == Pooling::max)
            Lanes::store(target, where == r * kTile + c ? gradient : typename Lanes::Floats{});
          else
            Lanes::store(target, gradient * kFactor);
        }
      }
    });
    const int64_t covered = static_cast<int64_t>(g.out_width) * kTile * g.channels;
    for (int r = 0; r < kTile; ++r)
      for (int64_t i : block_stride<kThreads>(row_size - covered))
        corner_row[r * row_size + covered + i] = from_float<T>(0);
    if (out_h == g.out_height - 1)
      for (int64_t i : block_stride<kThreads>((g.height - g.out_height * kTile) * row_size))
        corner_row[kTile * row_size + i] = from_float<T>(0);
  }
}

void check_pool2d(const char* operation, const Pool2dShape& s) {
  const std::string window =
      std::string(operation) + ": a window of " + std::to_string(s.kernel) + " x " + std::to_string(s.kernel);
  if (s.kernel < 1 || s.kernel > 16 || s.stride < 1 || s.padding < 0 || s.padding >= s.kernel)
    throw Error(window + ", stride " + std::to_string(s.stride) + ", padding " + std::to_string(s.padding) +
                ": use a window of 1 to 16, a positive stride, and a padding smaller than the window");
  if (s.height > kMostPixels || s.width > kMostPixels || s.stride > kMostPixels)
    throw Error(window + ", stride " + std::to_string(s.stride) + ", on an image of " +
                std::to_string(s.height) + " x " + std::to_string(s.width) + ": use at most " +
                std::to_string(kMostPixels) + " of each");
  if (s.kernel > s.height + 2 * s.padding || s.kernel > s.width + 2 * s.padding)
    throw Error(window + " does not fit into an image of " + std::to_string(s.height) + " x " +
                std::to_string(s.width) + " with padding " + std::to_string(s.padding));
}

namespace {

bool is_tiled_by_2(const Pool2dShape& s) {
  return s.kernel == 2 && s.stride == 2 && s.padding == 0;
}

constexpr int kPoolThreads = 128;

// Launches with one row per block on a GPU, with rows of some thousand values per block on the CPU.
template <typename Kernels, typename... Arguments>
void launch_rows(Kernels kernels, const Pool2dShape& shape, int64_t rows, int64_t row_size,
                 LaunchStream stream, Arguments... arguments) {
  if (rows == 0 || row_size == 0) return;
  const int64_t block_rows = kOnGpu ? 1 : std::max<int64_t>(1, 4096 / row_size);
  launch_blocks<kPoolThreads>(kernels, dim3(static_cast<unsigned>((rows + block_rows - 1) / block_rows)),
                              stream, PoolGeometry(shape), rows, static_cast<int>(block_rows), arguments...);
}

template <Pooling kPooling, typename T>
void pool2d_forward(const Pool2dShape& shape, const T* x, T* y, uint8_t* argmax, LaunchStream stream) {
  check_pool2d(kPooling == Pooling::max ? "max_pool2d" : "avg_pool2d", shape);
  const int64_t rows = shape.batch * shape.out_height();
  const int64_t row_size = static_cast<int64_t>(shape.out_width()) * shape.channels;
  if (is_tiled_by_2(shape))
    launch_rows([](auto threads) { return pool2d_forward_kernel<threads(), T, 2, kPooling>; }, shape, rows,
                row_size, stream, x, y, argmax);
  else
    launch_rows([](auto threads) { return pool2d_forward_kernel<threads(), T, 0, kPooling>; }, shape, rows,
                row_size, stream, x, y, argmax);
}

template <Pooling kPooling, typename T>
void pool2d_backward(const Pool2dShape& shape, const T* dy, const uint8_t* argmax, T* dx,
                     LaunchStream stream) {
  check_pool2d(kPooling == Pooling::max ? "max_pool2d" : "avg_pool2d", shape);
  if (is_tiled_by_2(shape))
    launch_rows([](auto threads) { return pool2d_backward_tiles_kernel<threads(), T, 2, kPooling>; }, shape,
                shape.batch * shape.out_height(), static_cast<int64_t>(shape.width) * shape.channels, stream,
                dy, argmax, dx);
  else
    launch_rows([](auto threads) { return pool2d_backward_kernel<threads(), T, kPooling>; }, shape,
                shape.batch * shape.height, static_cast<int64_t>(shape.width) * shape.channels, stream, dy,
                argmax, dx);
}

}  // namespace

template <typename T>
void max_pool2d_forward(const Pool2dShape& shape, const T* x, T* y, uint8_t* argmax, cudaStream_t stream) {
  pool2d_forward<Pooling::max>(shape, x, y, argmax, stream);
}

template <typename T>
void max_pool2d_backward(const Pool2dShape& shape, const T* dy, const uint8_t* argmax, T* dx,
                         cudaStream_t stream) {
  pool2d_backward<Pooling::max>(shape, dy, argmax, dx, stream);
}

template <typename T>
void avg_pool2d_forward(const Pool2dShape& shape, const T* x, T* y, cudaStream_t stream) {
  pool2d_forward<Pooling::average>(shape, x, y, nullptr, stream);
}

template <typename T>
void avg_pool2d_backward(const Pool2dShape& shape, const T* dy, T* dx, cudaStream_t stream) {
  pool2d_backward<Pooling::average>(shape, dy, nullptr, dx, stream);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                      \
  template void max_pool2d_forward(const Pool2dShape&, const T*, T*, uint8_t*, cudaStream_t);        \
  template void max_pool2d_backward(const Pool2dShape&, const T*, const uint8_t*, T*, cudaStream_t); \
  template void avg_pool2d_forward(const Pool2dShape&, const T*, T*, cudaStream_t);                  \
  template void avg_pool2d_backward(const Pool2dShape&, const T*, T*, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
