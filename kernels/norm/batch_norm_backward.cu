// The backward pass of batch normalisation: the sums that make dgamma and dbeta, then the gradient of the
// input, which needs them.
#include "kernels/norm/batch_norm.cuh"

namespace lockstep::kernels {

using namespace batch_norm;

// The gradient that arrives at the normalised values: dy, or what a ReLU with output y lets through.
template <typename Lanes, bool kRelu, typename T>
__device__ typename Lanes::Floats gradient_at(const T* y, const T* dy, int64_t i) {
  using Floats = typename Lanes::Floats;
  const Floats gradient = Lanes::load(dy + i);
  if constexpr (kRelu) return Lanes::load(y + i) > Floats{} ? gradient : Floats{};
  return gradient;
}

// Block (x, y): over chunk x, for the channels of tile y, the sums that make dbeta and dgamma.
template <int kThreads, typename T, bool kRelu>
__global__ void chunk_gradients_kernel(int64_t rows, int channels, const T* __restrict__ x,
                                       const T* __restrict__ y, const T* __restrict__ dy,
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
template <int kThreads, typename T, bool kRelu, BatchNormMode kMode>
__global__ void input_gradient_kernel(int64_t rows, int channels, int block_rows, float inv_rows,
                                      const T* __restrict__ x, const T* __restrict__ y,
                                      const T* __restrict__ dy, const float* __restrict__ mean,
                                      const float* __restrict__ inverse_stddev,
                                      const float* __restrict__ gamma, const float* __restrict__ dgamma,
                                      const float* __restrict__ dbeta, T* __restrict__ dx,
                                      T* __restrict__ daddend) {
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
      value -= (Lanes::load(dbeta + channel) + normalised * Lanes::load(dgamma + channel)) * inv_rows;
    }
    Lanes::store(dx + i, value * (inverse * Lanes::load(gamma + channel)));
    if constexpr (kRelu)
      if (daddend != nullptr) Lanes::store(daddend + i, gradient);
  });
}

template <typename T>
void batch_norm_gradient_sums(const BatchNormShape& shape, const T* x, const T* y, const T* dy,
                              const float* mean, const float* inverse_stddev, float* dgamma, float* dbeta,
                              void* workspace, cudaStream_t stream) {
  if (shape.channels == 0) return;
  const ChunkSums chunks(workspace, shape);
  const auto run = [&](auto kernels) {
    launch_blocks<kTileThreads>(kernels, chunk_grid(shape), stream, shape.rows, shape.channels, x, y, dy,
                                mean, inverse_stddev, chunks.first, chunks.second);
  };
  if (shape.rows > 0 && y != nullptr)
    run([](auto threads) { return chunk_gradients_kernel<threads(), T, true>; });
  else if (shape.rows > 0)
    run([](auto threads) { return chunk_gradients_kernel<threads(), T, false>; });
  launch_blocks<kTileThreads>(LOCKSTEP_BLOCK_KERNEL(combine_gradients_kernel), tile_grid(shape), stream,
                              chunk_count(shape.rows), shape.channels, chunks.first, chunks.second, dgamma,
                              dbeta);
}

template <typename T>
void batch_norm_input_gradient(const BatchNormShape& shape, BatchNormMode mode, int64_t rows_of_all,
                               const T* x, const T* y, const T* dy, const float* mean,
                               const float* inverse_stddev, const float* gamma, const float* dgamma,
                               const float* dbeta, T* dx, T* daddend, cudaStream_t stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  const auto run = [&](auto kernels) {
    launch_rows(kernels, shape, stream, inverse_of(rows_of_all), x, y, dy, mean, inverse_stddev, gamma,
                dgamma, dbeta, dx, daddend);
  };
  if (mode == BatchNormMode::batch && y != nullptr)
    run([](auto threads) { return input_gradient_kernel<threads(), T, true, BatchNormMode::batch>; });
  else if (mode == BatchNormMode::batch)
    run([](auto threads) { return input_gradient_kernel<threads(), T, false, BatchNormMode::batch>; });
  else if (y != nullptr)
    run([](auto threads) { return input_gradient_kernel<threads(), T, true, BatchNormMode::running>; });
  else
    run([](auto threads) { return input_gradient_kernel<threads(), T, false, BatchNormMode::running>; });
}

template <typename T>
void batch_norm_backward(const BatchNormShape& shape, BatchNormMode mode, const T* x, const T* y, const T* dy,
                         const float* mean, const float* inverse_stddev, const float* gamma, T* dx,
                         T* daddend, float* dgamma, float* dbeta, void* workspace, cudaStream_t stream) {
  batch_norm_gradient_sums(shape, x, y, dy, mean, inverse_stddev, dgamma, dbeta, workspace, stream);
  batch_norm_input_gradient(shape, mode, shape.rows, x, y, dy, mean, inverse_stddev, gamma, dgamma, dbeta, dx,
                            daddend, stream);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                              \
  template void batch_norm_gradient_sums(const BatchNormShape&, const T*, const T*, const T*, const float*,  \
                                         const float*, float*, float*, void*, cudaStream_t);                 \
  template void batch_norm_input_gradient(const BatchNormShape&, BatchNormMode, int64_t, const T*, const T*, \
                                          const T*, const float*, const float*, const float*, const float*,  \
                                          const float*, T*, T*, cudaStream_t);                               \
  template void batch_norm_backward(const BatchNormShape&, BatchNormMode, const T*, const T*, const T*,      \
                                    const float*, const float*, const float*, T*, T*, float*, float*, void*, \
                                    cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
