// Batch normalisation, forward. The variance is two-pass, in both steps of its sums: squared distances from
// the chunk's mean, then (Chan, Golub and LeVeque, 1983) from the mean of all.
#include "kernels/norm/batch_norm.cuh"

#include "kernels/check.h"

namespace lockstep::kernels {

using namespace batch_norm;

// Block (x, y): the mean of chunk x, and the sum of squared distances from it, for the channels of tile y.
template <int kThreads, typename T>
__global__ void chunk_statistics_kernel(int64_t rows, int channels, const T* __restrict__ x,
                                        float* __restrict__ chunk_mean, float* __restrict__ chunk_squares) {
  const Tile tile = tile_of(static_cast<int>(blockIdx.y), channels);
  const int64_t chunk = blockIdx.x;
  const int64_t count = rows_of_chunk(chunk, rows);
  const float factor = 1.0f / static_cast<float>(count);
  for_each_channel_in_tile<kThreads>(tile.first, tile.width, [=](auto lanes, int channel, bool writes) {
    using Lanes = decltype(lanes);
    using Floats = typename Lanes::Floats;
    const T* column = x + chunk * kChunkRows * channels + channel;
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

// The mean of a tile's channels, and the sum of squared distances from it, from those of the chunks.
template <int kThreads>
__device__ void combine_chunks(const Tile& tile, int64_t rows, int channels, const float* chunk_mean,
                               const float* chunk_squares, float inv_rows, float* mean, float* squares) {
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
        inv_rows;
    const Floats total = sum_rows<kThreads, Lanes>(chunks, [=](int64_t chunk) {
      const auto count = static_cast<float>(rows_of_chunk(chunk, rows));
      const Floats distance = Lanes::load(chunk_mean + chunk * channels + channel) - centre;
      return Lanes::load(chunk_squares + chunk * channels + channel) + distance * distance * count;
    });
    if (writes) {
      Lanes::store(mean + channel, centre);
      Lanes::store(squares + channel, total);
    }
  });
}

template <int kThreads>
__global__ void shard_statistics_kernel(int64_t rows, int channels, const float* __restrict__ chunk_mean,
                                        const float* __restrict__ chunk_squares, float inv_rows, float* mean,
                                        float* squares) {
  combine_chunks<kThreads>(tile_of(static_cast<int>(blockIdx.x), channels), rows, channels, chunk_mean,
                           chunk_squares, inv_rows, mean, squares);
}

// Block x: the statistics of tile x, and the running ones.
template <int kThreads>
__global__ void statistics_kernel(int64_t rows, int channels, const float* __restrict__ chunk_mean,
                                  const float* __restrict__ chunk_squares, float* mean,
                                  ChannelResults results) {
  const Tile tile = tile_of(static_cast<int>(blockIdx.x), channels);
  float* squares = results.inverse_stddev;  // until the loop below
  combine_chunks<kThreads>(tile, rows, channels, chunk_mean, chunk_squares, results.inv_rows, mean, squares);
  __syncthreads();
  for (int64_t i : block_stride<kThreads>(tile.width)) {
    const int64_t c = tile.first + i;
    results.write(c, mean[c], squares[c]);
  }
}

// Blocks handle `block_rows` rows each.
template <int kThreads, typename T, bool kAdd, bool kRelu>
__global__ void normalise_kernel(int64_t rows, int channels, int block_rows, const T* __restrict__ x,
                                 const float* __restrict__ mean, const float* __restrict__ inverse_stddev,
                                 const float* __restrict__ gamma, const float* __restrict__ beta,
                                 const T* __restrict__ addend, T* __restrict__ y) {
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

size_t batch_norm_workspace_bytes(const BatchNormShape& shape) {
  return static_cast<size_t>(2 * chunk_count(shape.rows) * shape.channels) * sizeof(float);
}

namespace {

template <typename T>
ChunkSums chunk_statistics(const BatchNormShape& shape, const T* x, void* workspace, cudaStream_t stream) {
  const ChunkSums chunks(workspace, shape);
  launch_blocks<kTileThreads>([](auto threads) { return chunk_statistics_kernel<threads(), T>; },
                              chunk_grid(shape), stream, shape.rows, shape.channels, x, chunks.first,
                              chunks.second);
  return chunks;
}

}  // namespace

template <typename T>
void batch_norm_statistics(const BatchNormShape& shape, const BatchNormSettings& settings, const T* x,
                           float* mean, float* inverse_stddev, float* running_mean, float* running_variance,
                           void* workspace, cudaStream_t stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  check_rows(shape.rows);
  const ChunkSums chunks = chunk_statistics(shape, x, workspace, stream);
  const ChannelResults results{settings,       inverse_of(shape.rows), inverse_of(shape.rows - 1),
                               inverse_stddev, running_mean,           running_variance};
  launch_blocks<kTileThreads>(LOCKSTEP_BLOCK_KERNEL(statistics_kernel), tile_grid(shape), stream, shape.rows,
                              shape.channels, chunks.first, chunks.second, mean, results);
}

template <typename T>
void batch_norm_shard_statistics(const BatchNormShape& shape, const T* x, float* statistics, void* workspace,
                                 cudaStream_t stream) {
  if (shape.channels == 0) return;
  if (shape.rows == 0) {
    LOCKSTEP_CUDA(
        cudaMemsetAsync(statistics, 0, 2 * static_cast<size_t>(shape.channels) * sizeof(float), stream));
    return;
  }
  const ChunkSums chunks = chunk_statistics(shape, x, workspace, stream);
  launch_blocks<kTileThreads>(LOCKSTEP_BLOCK_KERNEL(shard_statistics_kernel), tile_grid(shape), stream,
                              shape.rows, shape.channels, chunks.first, chunks.second, inverse_of(shape.rows),
                              statistics, statistics + shape.channels);
}

void batch_norm_inverse_stddev(const float* variance, float epsilon, int channels, float* inverse_stddev,
                               cudaStream_t stream) {
  launch_elements(stream, channels,
                  [=] __device__(int64_t c) { inverse_stddev[c] = 1.0f / sqrtf(variance[c] + epsilon); });
}

template <typename T>
void batch_norm_normalise(const BatchNormShape& shape, const T* x, const float* mean,
                          const float* inverse_stddev, const float* gamma, const float* beta, const T* addend,
                          bool relu, T* y, cudaStream_t stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  const auto run = [&](auto kernels) {
    launch_rows(kernels, shape, stream, x, mean, inverse_stddev, gamma, beta, addend, y);
  };
  if (addend != nullptr && relu)
    run([](auto threads) { return normalise_kernel<threads(), T, true, true>; });
  else if (addend != nullptr)
    run([](auto threads) { return normalise_kernel<threads(), T, true, false>; });
  else if (relu)
    run([](auto threads) { return normalise_kernel<threads(), T, false, true>; });
  else
    run([](auto threads) { return normalise_kernel<threads(), T, false, false>; });
}
#define LOCKSTEP_INSTANTIATE(T)                                                                            \
  template void batch_norm_statistics(const BatchNormShape&, const BatchNormSettings&, const T*, float*,   \
                                      float*, float*, float*, void*, cudaStream_t);                        \
  template void batch_norm_shard_statistics(const BatchNormShape&, const T*, float*, void*, cudaStream_t); \
  template void batch_norm_normalise(const BatchNormShape&, const T*, const float*, const float*,          \
                                     const float*, const float*, const T*, bool, T*, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
