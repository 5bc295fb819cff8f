// The backward pass of batch normalisation: the sums that make dgamma and dbeta, then the gradient of the
// input, which needs them.
#include "kernels/norm/batch_norm.cuh"

namespace lockstep::kernels {

using namespace batch_norm;

// The gradient that arrives at the normalised values: dy, or what a ReLU with output y lets through.
template <typename Lanes, bool kRelu, typename T>
__device__ typename Lanes::Floats gradient_at(const T* y, const T* dy, int64_t i) {
  const typename Lanes::Floats gradient = Lanes::load(dy + i);
  if constexpr (kRelu) return where_positive(Lanes::load(y + i), gradient);
  return gradient;
}

// Block (x, y): over slice x, for the channels of tile y, the sums that make dbeta and dgamma.
template <int kThreads, typename T, bool kRelu>
__global__ void gradient_sums_kernel(RowSlices slices, int channels, const T* __restrict__ x,
                                     const T* __restrict__ y, const T* __restrict__ dy,
                                     const float* __restrict__ mean, const float* __restrict__ inverse_stddev,
                                     float* slice_dgamma, float* slice_dbeta, unsigned* tickets,
                                     float* __restrict__ dgamma, float* __restrict__ dbeta) {
  const int64_t slice = blockIdx.x;
  const int64_t count = slices.rows_of(slice);
  for_each_channel_in_tile<kThreads>(
      tile_of(static_cast<int>(blockIdx.y), channels), [=](auto lanes, int channel, bool writes) {
        using Lanes = decltype(lanes);
        using Floats = typename Lanes::Floats;
        const int64_t corner = slices.first(slice) * channels + channel;
        const Floats centre = Lanes::load_any(mean + channel);
        const Floats of_gamma = sum_rows<kThreads, Lanes>(count,
                                                          [=](int64_t row) {
                                                            const int64_t i = corner + row * channels;
                                                            return gradient_at<Lanes, kRelu>(y, dy, i) *
                                                                   (Lanes::load(x + i) - centre);
                                                          }) *
                                Lanes::load_any(inverse_stddev + channel);
        const Floats of_beta = sum_rows<kThreads, Lanes>(
            count, [=](int64_t row) { return gradient_at<Lanes, kRelu>(y, dy, corner + row * channels); });
        if (writes) {
          Lanes::store(slice_dgamma + slice * channels + channel, of_gamma);
          Lanes::store(slice_dbeta + slice * channels + channel, of_beta);
        }
      });
  combine_slices<kThreads>(tickets, channels, [=](const Tile& tile) {
    for_each_channel_in_tile<kThreads>(tile, [=](auto lanes, int channel, bool writes) {
      using Lanes = decltype(lanes);
      const auto total = [=](const float* of_slice) {
        return sum_rows<kThreads, Lanes>(
            slices.count, [=](int64_t s) { return Lanes::load(of_slice + s * channels + channel); });
      };
      const auto gamma_total = total(slice_dgamma);
      const auto beta_total = total(slice_dbeta);
      if (writes) {
        Lanes::store_any(dgamma + channel, gamma_total);
        Lanes::store_any(dbeta + channel, beta_total);
      }
    });
  });
}

// With statistics of the batch: dx = gamma inverse_stddev (g - mean(g) - normalised x * mean(g * normalised
// x)).
template <int kThreads, int kPack, typename T, bool kRelu, bool kBatch>
__global__ void input_gradient_kernel(int64_t rows, int channels, int block_rows, float inv_rows,
                                      const T* __restrict__ x, const T* __restrict__ y,
                                      const T* __restrict__ dy, const float* __restrict__ mean,
                                      const float* __restrict__ inverse_stddev,
                                      const float* __restrict__ gamma, const float* __restrict__ dgamma,
                                      const float* __restrict__ dbeta, T* __restrict__ dx,
                                      T* __restrict__ daddend) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * block_rows;
  const auto count = static_cast<int>(rows - first < block_rows ? rows - first : block_rows);
  for_each_row<kThreads, kPack>(count, channels, [=](auto lanes, int channel) {
    using Lanes = decltype(lanes);
    using Floats = typename Lanes::Floats;
    const Floats inverse = Lanes::load_any(inverse_stddev + channel);
    const Floats scale = inverse * Lanes::load_any(gamma + channel);
    const Floats centre = Lanes::load_any(mean + channel);
    const Floats of_gamma = Lanes::load_any(dgamma + channel);
    const Floats of_beta = Lanes::load_any(dbeta + channel);
    const int64_t corner = first * channels + channel;
    return [=](int row) {
      const int64_t i = corner + static_cast<int64_t>(row) * channels;
      const Floats gradient = gradient_at<Lanes, kRelu>(y, dy, i);
      Floats value = gradient;
      if constexpr (kBatch) {
        const Floats normalised = (Lanes::load(x + i) - centre) * inverse;
        value -= (of_beta + normalised * of_gamma) * inv_rows;
      }
      Lanes::store(dx + i, value * scale);
      if constexpr (kRelu)
        if (daddend != nullptr) Lanes::store(daddend + i, gradient);
    };
  });
}

template <typename T>
void batch_norm_gradient_sums(const BatchNormShape& shape, const T* x, const T* y, const T* dy,
                              const float* mean, const float* inverse_stddev, float* dgamma, float* dbeta,
                              const SumScratch& scratch, cudaStream_t stream) {
  if (shape.channels == 0) return;
  const SliceSums sums(scratch.workspace, shape);
  const auto run = [&]<bool kRelu>(std::bool_constant<kRelu>) {
    launch_row_sums<T>([](auto threads) { return gradient_sums_kernel<threads(), T, kRelu>; },
                       slices_of(shape), shape.channels, are_aligned(x, y, dy), stream, slices_of(shape),
                       shape.channels, x, y, dy, mean, inverse_stddev, sums.first, sums.second,
                       scratch.tickets, dgamma, dbeta);
  };
  with_constants(run, y != nullptr);
}

template <typename T>
void batch_norm_input_gradient(const BatchNormShape& shape, BatchNormMode mode, int64_t rows_of_all,
                               const T* x, const T* y, const T* dy, const float* mean,
                               const float* inverse_stddev, const float* gamma, const float* dgamma,
                               const float* dbeta, T* dx, T* daddend, cudaStream_t stream) {
  if (shape.rows == 0 || shape.channels == 0) return;
  const auto run = [&]<bool kRelu, bool kBatch>(std::bool_constant<kRelu>, std::bool_constant<kBatch>) {
    launch_rows<T>(
        [](auto threads, auto pack) { return input_gradient_kernel<threads(), pack(), T, kRelu, kBatch>; },
        shape, are_aligned(x, y, dy, dx, daddend), stream, inverse_of(rows_of_all), x, y, dy, mean,
        inverse_stddev, gamma, dgamma, dbeta, dx, daddend);
  };
  with_constants(run, y != nullptr, mode == BatchNormMode::batch);
}

template <typename T>
void batch_norm_backward(const BatchNormShape& shape, BatchNormMode mode, const T* x, const T* y, const T* dy,
                         const float* mean, const float* inverse_stddev, const float* gamma, T* dx,
                         T* daddend, float* dgamma, float* dbeta, const SumScratch& scratch,
                         cudaStream_t stream) {
  batch_norm_gradient_sums(shape, x, y, dy, mean, inverse_stddev, dgamma, dbeta, scratch, stream);
  batch_norm_input_gradient(shape, mode, shape.rows, x, y, dy, mean, inverse_stddev, gamma, dgamma, dbeta, dx,
                            daddend, stream);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                              \
  template void batch_norm_gradient_sums(const BatchNormShape&, const T*, const T*, const T*, const float*,  \
                                         const float*, float*, float*, const SumScratch&, cudaStream_t);     \
  template void batch_norm_input_gradient(const BatchNormShape&, BatchNormMode, int64_t, const T*, const T*, \
                                          const T*, const float*, const float*, const float*, const float*,  \
                                          const float*, T*, T*, cudaStream_t);                               \
  template void batch_norm_backward(const BatchNormShape&, BatchNormMode, const T*, const T*, const T*,      \
                                    const float*, const float*, const float*, T*, T*, float*, float*,        \
                                    const SumScratch&, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
