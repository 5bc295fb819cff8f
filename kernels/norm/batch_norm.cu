// Batch normalisation, forward. The variance is two-pass, in both steps of its sums: squared distances from
// the slice's mean, then (Chan, Golub and LeVeque, 1983) from the mean of all.
#include "kernels/norm/batch_norm.cuh"

#include "kernels/check.h"

namespace lockstep::kernels {

using namespace batch_norm;

// What the last block to a tile does with the means and squared distances of its slices.
struct ShardResults {
  float *mean, *squares;
  __device__ void finish(int64_t /*channel*/) const {}
};

struct BatchResults {
  float *mean, *squares;
  ChannelResults results;
  __device__ void finish(int64_t channel) const { results.write(channel, mean[channel], squares[channel]); }
};

// Block (x, y): the mean of slice x, and the sum of squared distances from it, for the channels of tile y.
template <int kThreads, typename T, typename Results>
__global__ void statistics_kernel(RowSlices slices, int channels, float inv_rows, const T* __restrict__ x,
                                  float* slice_mean, float* slice_squares, unsigned* tickets,
                                  Results results) {
  const int64_t slice = blockIdx.x;
  const int64_t count = slices.rows_of(slice);
  const float factor = 1.0f / static_cast<float>(count);
  for_each_channel_in_tile<kThreads>(
      tile_of(static_cast<int>(blockIdx.y), channels), [=](auto lanes, int channel, bool writes) {
        using Lanes = decltype(lanes);
        using Floats = typename Lanes::Floats;
        const T* column = x + slices.first(slice) * channels + channel;
        const Floats mean = sum_rows<kThreads, Lanes>(
                                count, [=](int64_t row) { return Lanes::load(column + row * channels); }) *
                            factor;
        const Floats squares = sum_rows<kThreads, Lanes>(count, [=](int64_t row) {
          const Floats distance = Lanes::load(column + row * channels) - mean;
          return distance * distance;
        });
        if (writes) {
          Lanes::store(slice_mean + slice * channels + channel, mean);
          Lanes::store(slice_squares + slice * channels + channel, squares);
        }
      });
  combine_slices<kThreads>(tickets, channels, [=](const Tile& tile) {
    for_each_channel_in_tile<kThreads>(tile, [=](auto lanes, int channel, bool writes) {
      using Lanes = decltype(lanes);
      using Floats = typename Lanes::Floats;
      const Floats centre =
          sum_rows<kThreads, Lanes>(slices.count,
                                    [=](int64_t s) {
                                      return Lanes::load(slice_mean + s * channels + channel) *
                                             static_cast<float>(slices.rows_of(s));
                                    }) *
          inv_rows;
      const Floats total = sum_rows<kThreads, Lanes>(slices.count, [=](int64_t s) {
        const Floats distance = Lanes::load(slice_mean + s * channels + channel) - centre;
        return Lanes::load(slice_squares + s * channels + channel) +
               distance * distance * static_cast<float>(slices.rows_of(s));
      });
      if (writes) {
        Lanes::store_any(results.mean + channel, centre);
        Lanes::store_any(results.squares + channel, total);
      }
    });
    __syncthreads();
    for (int64_t i : block_stride<kThreads>(tile.width)) results.finish(tile.first + i);
  });
}

// Blocks handle `block_rows` rows each.
template <int kThreads, int kPack, typename T, bool kAdd, bool kRelu>
__global__ void normalise_kernel(int64_t rows, int channels, int block_rows, const T* __restrict__ x,
                                 const float* __restrict__ mean, const float* __restrict__ inverse_stddev,
                                 const float* __restrict__ gamma, const float* __restrict__ beta,
                                 const T* __restrict__ addend, T* __restrict__ y) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * block_rows;
  const auto count = static_cast<int>(rows - first < block_rows ? rows - first : block_rows);
  for_each_row<kThreads, kPack>(count, channels, [=](auto lanes, int channel) {
    using Lanes = decltype(lanes);
    using Floats = typename Lanes::Floats;
    const Floats scale = Lanes::load_any(inverse_stddev + channel) * Lanes::load_any(gamma + channel);
    const Floats centre = Lanes::load_any(mean + channel);
    const Floats shift = Lanes::load_any(beta + channel);
    const int64_t corner = first * channels + channel;
    return [=](int row) {
      const int64_t i = corner + static_cast<int64_t>(row) * channels;
      Floats value = (Lanes::load(x + i) - centre) * scale + shift;
      if constexpr (kAdd) value += Lanes::load(addend + i);
      if constexpr (kRelu) value = rectified(value);
      Lanes::store(y + i, value);
    };
  });
}

size_t batch_norm_workspace_bytes(const BatchNormShape& shape) {
  return static_cast<size_t>(2 * int64_t{slices_of(shape).count} * shape.channels) * sizeof(float);
}

namespace {

template <typename T, typename Results>
void statistics(const BatchNormShape& shape, const T* x, const Results& results, const SumScratch& scratch,
                cudaStream_t stream) {
  const SliceSums sums(scratch.workspace, shape);
  launch_row_sums<T>([](auto threads) { return statistics_kernel<threads(), T, Results>; }, slices_of(shape),
                     shape.channels, are_aligned(x), stream, slices_of(shape), shape.channels,
                     inverse_of(shape.rows), x, sums.first, sums.second, scratch.tickets, results);
}

}  // namespace

template <typename T>
void batch_norm_statistics(const BatchNormShape& shape, const BatchNormSettings& settings, const T* x,
                           float* mean, float* inverse_stddev, float* running_mean, float* running_variance,
                           const SumScratch& scratch, cudaStream_t stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  check_rows(shape.rows);
  const ChannelResults results{settings,       inverse_of(shape.rows), inverse_of(shape.rows - 1),
                               inverse_stddev, running_mean,           running_variance};
  // The squares lie where the inverse of their root will.
  statistics(shape, x, BatchResults{mean, inverse_stddev, results}, scratch, stream);
}

template <typename T>
void batch_norm_shard_statistics(const BatchNormShape& shape, const T* x, float* of_shard,
                                 const SumScratch& scratch, cudaStream_t stream) {
  if (shape.channels == 0) return;
  if (shape.rows == 0) {
    LOCKSTEP_CUDA(
        cudaMemsetAsync(of_shard, 0, 2 * static_cast<size_t>(shape.channels) * sizeof(float), stream));
    return;
  }
  statistics(shape, x, ShardResults{of_shard, of_shard + shape.channels}, scratch, stream);
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
  const auto run = [&]<bool kAdd, bool kRelu>(std::bool_constant<kAdd>, std::bool_constant<kRelu>) {
    launch_rows<T>(
        [](auto threads, auto pack) { return normalise_kernel<threads(), pack(), T, kAdd, kRelu>; }, shape,
        are_aligned(x, addend, y), stream, x, mean, inverse_stddev, gamma, beta, addend, y);
  };
  with_constants(run, addend != nullptr, relu);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                          \
  template void batch_norm_statistics(const BatchNormShape&, const BatchNormSettings&, const T*, float*, \
                                      float*, float*, float*, const SumScratch&, cudaStream_t);          \
  template void batch_norm_shard_statistics(const BatchNormShape&, const T*, float*, const SumScratch&,  \
                                            cudaStream_t);                                               \
  template void batch_norm_normalise(const BatchNormShape&, const T*, const float*, const float*,        \
                                     const float*, const float*, const T*, bool, T*, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
