// Batch normalisation. Sums over rows go in two steps: a block has 128 rows of a tile of channels, which stay
// in cache for its second pass, and one more kernel combines these chunks. The variance is two-pass in both
// steps: squared distances from the chunk's mean, then (Chan, Golub and LeVeque, 1983) from the mean of all.
#include "kernels/batch_norm.h"

#include <algorithm>
#include <string>

#include "kernels/channel_lanes.cuh"
#include "kernels/check.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {

namespace {

constexpr int64_t kChunkRows = 128;

int64_t chunk_count(int64_t rows) {
  return (rows + kChunkRows - 1) / kChunkRows;
}

// Channels [first, first + width) of a tile.
struct Tile {
  int first, width;
};

}  // namespace

__device__ inline Tile tile_of(int index, int channels) {
  const int first = index * kTileChannels;
  return {first, channels - first < kTileChannels ? channels - first : kTileChannels};
}

__device__ inline int64_t rows_of_chunk(int64_t chunk, int64_t rows) {
  const int64_t left = rows - chunk * kChunkRows;
  return left < kChunkRows ? left : kChunkRows;
}

// Block (x, y): the mean of chunk x, and the sum of squared distances from it, for the channels of tile y.
template <int kThreads>
__global__ void chunk_statistics_kernel(int64_t rows, int channels, const float* __restrict__ x,
                                        float* __restrict__ chunk_mean, float* __restrict__ chunk_squares) {
  const Tile tile = tile_of(static_cast<int>(blockIdx.y), channels);
  const int64_t chunk = blockIdx.x;
  const int64_t count = rows_of_chunk(chunk, rows);
  const float factor = 1.0f / static_cast<float>(count);
  for_each_channel_in_tile<kThreads>(tile.first, tile.width, [=](auto lanes, int channel, bool writes) {
    using Lanes = decltype(lanes);
    using Floats = typename Lanes::Floats;
    const float* column = x + chunk * kChunkRows * channels + channel;
    const Floats mean =
        sum_rows<kThreads, Lanes>(count, [=](int64_t row) { return Lanes::load(column + row * channels); }) *
        factor;
    const Floats squares = sum_rows<kThreads, Lanes>(count, [=](int64_t row) {
      const Floats distance = Lanes::load(column + row * channels) - mean;
      return distance * distance;
    });
    if (writes) {
      Lanes::store(chunk_mean + chunk * channels + channel, mean);
      Lanes::store(chunk_squares + chunk * channels + channel, squares);
    }
  });
}

// Block x: the statistics of tile x from those of its chunks, and the running ones.
template <int kThreads>
__global__ void combine_statistics_kernel(int64_t rows, int channels, const float* __restrict__ chunk_mean,
                                          const float* __restrict__ chunk_squares, BatchNormSettings settings,
                                          float one_in_rows, float one_in_rows_less_one, float* mean,
                                          float* inverse_stddev, float* running_mean,
                                          float* running_variance) {
  const Tile tile = tile_of(static_cast<int>(blockIdx.x), channels);
  const int64_t chunks = (rows + kChunkRows - 1) / kChunkRows;
  for_each_channel_in_tile<kThreads>(tile.first, tile.width, [=](auto lanes, int channel, bool writes) {
    using Lanes = decltype(lanes);
    using Floats = typename Lanes::Floats;
    const Floats centre =
        sum_rows<kThreads, Lanes>(chunks,
                                  [=](int64_t chunk) {
                                    const auto count = static_cast<float>(rows_of_chunk(chunk, rows));
                                    return Lanes::load(chunk_mean + chunk * channels + channel) * count;
                                  }) *
        one_in_rows;
    const Floats squares = sum_rows<kThreads, Lanes>(chunks, [=](int64_t chunk) {
      const auto count = static_cast<float>(rows_of_chunk(chunk, rows));
      const Floats distance = Lanes::load(chunk_mean + chunk * channels + channel) - centre;
      return Lanes::load(chunk_squares + chunk * channels + channel) + distance * distance * count;
    });
    if (writes) {
      Lanes::store(mean + channel, centre);
      Lanes::store(inverse_stddev + channel, squares);  // until the loop below
    }
  });
  __syncthreads();
  for (int64_t i : block_stride<kThreads>(tile.width)) {
    const int64_t c = tile.first + i;
    const float squares = inverse_stddev[c];
    inverse_stddev[c] = 1.0f / sqrtf(squares * one_in_rows + settings.epsilon);
    running_mean[c] = (1.0f - settings.momentum) * running_mean[c] + settings.momentum * mean[c];
    running_variance[c] = (1.0f - settings.momentum) * running_variance[c] +
                          settings.momentum * (squares * one_in_rows_less_one);
  }
}

// Blocks handle `block_rows` rows each.
template <int kThreads, bool kAdd, bool kRelu>
__global__ void normalise_kernel(int64_t rows, int channels, int block_rows, const float* __restrict__ x,
                                 const float* __restrict__ mean, const float* __restrict__ inverse_stddev,
                                 const float* __restrict__ gamma, const float* __restrict__ beta,
                                 const float* __restrict__ addend, float* __restrict__ y) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * block_rows;
  const auto count = static_cast<int>(rows - first < block_rows ? rows - first : block_rows);
  for_each_channel<kThreads, false>(count, channels, [=](auto lanes, int row, int channel) {
    using Lanes = decltype(lanes);
    using Floats = typename Lanes::Floats;
    const int64_t i = (first + row) * channels + channel;
    const Floats scale = Lanes::load(inverse_stddev + channel) * Lanes::load(gamma + channel);
    Floats value = (Lanes::load(x + i) - Lanes::load(mean + channel)) * scale + Lanes::load(beta + channel);
    if constexpr (kAdd) value += Lanes::load(addend + i);
    if constexpr (kRelu) value = value <= Floats{} ? Floats{} : value;
    Lanes::store(y + i, value);
  });
}

// The gradient that arrives at the normalised values: dy, or what a ReLU with output y lets through.
template <typename Lanes, bool kRelu>
__device__ typename Lanes::Floats gradient_at(const float* y, const float* dy, int64_t i) {
  using Floats = typename Lanes::Floats;
  const Floats gradient = Lanes::load(dy + i);
  if constexpr (kRelu) return Lanes::load(y + i) > Floats{} ? gradient : Floats{};
  return gradient;
}

// Block (x, y): over chunk x, for the channels of tile y, the sums that make dbeta and dgamma.
template <int kThreads, bool kRelu>
__global__ void chunk_gradients_kernel(int64_t rows, int channels, const float* __restrict__ x,
                                       const float* __restrict__ y, const float* __restrict__ dy,
                                       const float* __restrict__ mean,
                                       const float* __restrict__ inverse_stddev,
                                       float* __restrict__ chunk_dgamma, float* __restrict__ chunk_dbeta) {
  const Tile tile = tile_of(static_cast<int>(blockIdx.y), channels);
  const int64_t chunk = blockIdx.x;
  const int64_t count = rows_of_chunk(chunk, rows);
  for_each_channel_in_tile<kThreads>(tile.first, tile.width, [=](auto lanes, int channel, bool writes) {
    using Lanes = decltype(lanes);
    using Floats = typename Lanes::Floats;
    const int64_t corner = chunk * kChunkRows * channels + channel;
    const Floats centre = Lanes::load(mean + channel);
    const Floats dgamma = sum_rows<kThreads, Lanes>(count,
                                                    [=](int64_t row) {
                                                      const int64_t i = corner + row * channels;
                                                      return gradient_at<Lanes, kRelu>(y, dy, i) *
                                                             (Lanes::load(x + i) - centre);
                                                    }) *
                          Lanes::load(inverse_stddev + channel);
    const Floats dbeta = sum_rows<kThreads, Lanes>(
        count, [=](int64_t row) { return gradient_at<Lanes, kRelu>(y, dy, corner + row * channels); });
    if (writes) {
      Lanes::store(chunk_dgamma + chunk * channels + channel, dgamma);
      Lanes::store(chunk_dbeta + chunk * channels + channel, dbeta);
    }
  });
}

template <int kThreads>
__global__ void combine_gradients_kernel(int64_t chunks, int channels, const float* __restrict__ chunk_dgamma,
                                         const float* __restrict__ chunk_dbeta, float* __restrict__ dgamma,
                                         float* __restrict__ dbeta) {
  const Tile tile = tile_of(static_cast<int>(blockIdx.x), channels);
  for_each_channel_in_tile<kThreads>(tile.first, tile.width, [=](auto lanes, int channel, bool writes) {
    using Lanes = decltype(lanes);
    const auto total = [=](const float* of_chunk) {
      return sum_rows<kThreads, Lanes>(
          chunks, [=](int64_t chunk) { return Lanes::load(of_chunk + chunk * channels + channel); });
    };
    const auto gamma_total = total(chunk_dgamma);
    const auto beta_total = total(chunk_dbeta);
    if (writes) {
      Lanes::store(dgamma + channel, gamma_total);
      Lanes::store(dbeta + channel, beta_total);
    }
  });
}

// With statistics of the batch: dx = gamma inverse_stddev (g - mean(g) - normalised x * mean(g * normalised
// x)).
template <int kThreads, bool kRelu, BatchNormMode kMode>
__global__ void input_gradient_kernel(int64_t rows, int channels, int block_rows, float one_in_rows,
                                      const float* __restrict__ x, const float* __restrict__ y,
                                      const float* __restrict__ dy, const float* __restrict__ mean,
                                      const float* __restrict__ inverse_stddev,
                                      const float* __restrict__ gamma, const float* __restrict__ dgamma,
                                      const float* __restrict__ dbeta, float* __restrict__ dx,
                                      float* __restrict__ daddend) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * block_rows;
  const auto count = static_cast<int>(rows - first < block_rows ? rows - first : block_rows);
  for_each_channel<kThreads, false>(count, channels, [=](auto lanes, int row, int channel) {
    using Lanes = decltype(lanes);
    using Floats = typename Lanes::Floats;
    const int64_t i = (first + row) * channels + channel;
    const Floats inverse = Lanes::load(inverse_stddev + channel);
    const Floats gradient = gradient_at<Lanes, kRelu>(y, dy, i);
    Floats value = gradient;
    if constexpr (kMode == BatchNormMode::batch) {
      const Floats normalised = (Lanes::load(x + i) - Lanes::load(mean + channel)) * inverse;
      value -= (Lanes::load(dbeta + channel) + normalised * Lanes::load(dgamma + channel)) * one_in_rows;
    }
    Lanes::store(dx + i, value * (inverse * Lanes::load(gamma + channel)));
    if constexpr (kRelu)
      if (daddend != nullptr) Lanes::store(daddend + i, gradient);
  });
}

namespace {

constexpr int kRowThreads = 256;

dim3 chunk_grid(const BatchNormShape& s) {
  return dim3(static_cast<unsigned>(chunk_count(s.rows)),
              static_cast<unsigned>((s.channels + kTileChannels - 1) / kTileChannels));
}

dim3 tile_grid(const BatchNormShape& s) {
  return dim3(static_cast<unsigned>((s.channels + kTileChannels - 1) / kTileChannels));
}

// Launches over rows, some thousand values a block.
template <typename Kernels, typename... Arguments>
void launch_rows(Kernels kernels, const BatchNormShape& s, LaunchStream stream, Arguments... arguments) {
  const int block_rows = std::max(1, (kOnGpu ? 2048 : 8192) / s.channels);
  launch_blocks<kRowThreads>(kernels, dim3(static_cast<unsigned>((s.rows + block_rows - 1) / block_rows)),
                             stream, s.rows, s.channels, block_rows, arguments...);
}

// The workspace: two values a chunk and channel.
struct ChunkSums {
  float *first, *second;
  ChunkSums(void* workspace, const BatchNormShape& s)
      : first(static_cast<float*>(workspace)), second(first + chunk_count(s.rows) * s.channels) {}
};

float one_in(int64_t n) {
  return static_cast<float>(1.0 / static_cast<double>(n));
}

}  // namespace

size_t batch_norm_workspace_bytes(const BatchNormShape& shape) {
  return static_cast<size_t>(2 * chunk_count(shape.rows) * shape.channels) * sizeof(float);
}

void batch_norm_statistics(const BatchNormShape& shape, const BatchNormSettings& settings, const float* x,
                           float* mean, float* inverse_stddev, float* running_mean, float* running_variance,
                           void* workspace, cudaStream_t stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  if (shape.rows == 1)
    throw Error("batch_norm: one value a channel has no variance: train with more rows or larger images");
  const ChunkSums chunks(workspace, shape);
  launch_blocks<kTileThreads>(LOCKSTEP_BLOCK_KERNEL(chunk_statistics_kernel), chunk_grid(shape), stream,
                              shape.rows, shape.channels, x, chunks.first, chunks.second);
  launch_blocks<kTileThreads>(LOCKSTEP_BLOCK_KERNEL(combine_statistics_kernel), tile_grid(shape), stream,
                              shape.rows, shape.channels, chunks.first, chunks.second, settings,
                              one_in(shape.rows), one_in(shape.rows - 1), mean, inverse_stddev, running_mean,
                              running_variance);
}

void batch_norm_inverse_stddev(const float* variance, float epsilon, int channels, float* inverse_stddev,
                               cudaStream_t stream) {
  launch_elements(stream, channels,
                  [=] __device__(int64_t c) { inverse_stddev[c] = 1.0f / sqrtf(variance[c] + epsilon); });
}

void batch_norm_normalise(const BatchNormShape& shape, const float* x, const float* mean,
                          const float* inverse_stddev, const float* gamma, const float* beta,
                          const float* addend, bool relu, float* y, cudaStream_t stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  const auto run = [&](auto kernels) {
    launch_rows(kernels, shape, stream, x, mean, inverse_stddev, gamma, beta, addend, y);
  };
  if (addend != nullptr && relu)
    run([](auto threads) { return normalise_kernel<threads(), true, true>; });
  else if (addend != nullptr)
    run([](auto threads) { return normalise_kernel<threads(), true, false>; });
  else if (relu)
    run([](auto threads) { return normalise_kernel<threads(), false, true>; });
  else
    run([](auto threads) { return normalise_kernel<threads(), false, false>; });
}

namespace {

template <bool kRelu>
void backward(const BatchNormShape& shape, BatchNormMode mode, const float* x, const float* y,
              const float* dy, const float* mean, const float* inverse_stddev, const float* gamma, float* dx,
              float* daddend, float* dgamma, float* dbeta, void* workspace, cudaStream_t stream) {
  const ChunkSums chunks(workspace, shape);
  if (shape.rows > 0)
    launch_blocks<kTileThreads>([](auto threads) { return chunk_gradients_kernel<threads(), kRelu>; },
                                chunk_grid(shape), stream, shape.rows, shape.channels, x, y, dy, mean,
                                inverse_stddev, chunks.first, chunks.second);
  launch_blocks<kTileThreads>(LOCKSTEP_BLOCK_KERNEL(combine_gradients_kernel), tile_grid(shape), stream,
                              chunk_count(shape.rows), shape.channels, chunks.first, chunks.second, dgamma,
                              dbeta);
  if (shape.rows == 0) return;
  const auto run = [&](auto kernels) {
    launch_rows(kernels, shape, stream, one_in(shape.rows), x, y, dy, mean, inverse_stddev, gamma, dgamma,
                dbeta, dx, daddend);
  };
  if (mode == BatchNormMode::batch)
    run([](auto threads) { return input_gradient_kernel<threads(), kRelu, BatchNormMode::batch>; });
  else
    run([](auto threads) { return input_gradient_kernel<threads(), kRelu, BatchNormMode::running>; });
}

}  // namespace

void batch_norm_backward(const BatchNormShape& shape, BatchNormMode mode, const float* x, const float* y,
                         const float* dy, const float* mean, const float* inverse_stddev, const float* gamma,
                         float* dx, float* daddend, float* dgamma, float* dbeta, void* workspace,
                         cudaStream_t stream) {
  if (shape.channels == 0) return;
  if (y != nullptr)
    backward<true>(shape, mode, x, y, dy, mean, inverse_stddev, gamma, dx, daddend, dgamma, dbeta, workspace,
                   stream);
  else
    backward<false>(shape, mode, x, y, dy, mean, inverse_stddev, gamma, dx, daddend, dgamma, dbeta, workspace,
                    stream);
}

}  // namespace lockstep::kernels
