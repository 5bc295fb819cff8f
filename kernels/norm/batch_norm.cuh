// What the kernels of batch normalisation share. Sums over rows go as kernels/row_sums.cuh has it: a slice of
// the rows stays in cache for its second pass.
#pragma once

#include <algorithm>

#include "kernels/check.h"
#include "kernels/norm/batch_norm.h"
#include "kernels/row_sums.cuh"

namespace lockstep::kernels::batch_norm {

inline RowSlices slices_of(const BatchNormShape& s) {
  return {s.rows, s.channels};
}

// Launches over rows, some thousand values per block; kernels(threads, pack). `aligned`: see are_aligned.
template <typename T, typename Kernels, typename... Arguments>
void launch_rows(Kernels kernels, const BatchNormShape& s, bool aligned, LaunchStream stream,
                 const Arguments&... arguments) {
  constexpr int kThreads = 256;
  const auto run = [&](auto pack) {
    const int block_values = at_gpu_block_size ? 4 * kThreads * pack() : 8192;
    const int block_rows = std::max(1, block_values / s.channels);
    const int packs = s.channels / pack();
    const unsigned tiles = at_gpu_block_size ? static_cast<unsigned>((packs + kThreads - 1) / kThreads) : 1;
    launch_blocks<kThreads>([kernels, pack](auto threads) { return kernels(threads, pack); },
                            dim3(static_cast<unsigned>((s.rows + block_rows - 1) / block_rows), tiles),
                            stream, s.rows, s.channels, block_rows, arguments...);
  };
  if (aligned && s.channels % kPackOf<T> == 0)
    run(std::integral_constant<int, kPackOf<T>>{});
  else
    run(std::integral_constant<int, 1>{});
}

// The workspace: two values a slice and channel.
struct SliceSums {
  float *first, *second;
  SliceSums(void* workspace, const BatchNormShape& s)
      : first(static_cast<float*>(workspace)), second(first + int64_t{slices_of(s).count} * s.channels) {}
};

inline float inverse_of(int64_t n) {
  return static_cast<float>(1.0 / static_cast<double>(n));
}

inline void check_rows(int64_t rows) {
  if (rows == 1)
    throw Error("batch_norm: one value per channel has no variance: train with more rows or larger images");
}

// What follows from a channel's mean and its sum of squared distances from it, over at least two rows.
struct ChannelResults {
  BatchNormSettings settings;
  float inv_rows, inv_rows_minus_1;
  float *inverse_stddev, *running_mean, *running_variance;

  __device__ void write(int64_t c, float mean, float squares) const {
    inverse_stddev[c] = 1.0f / sqrtf(squares * inv_rows + settings.epsilon);
    running_mean[c] = (1.0f - settings.momentum) * running_mean[c] + settings.momentum * mean;
    running_variance[c] =
        (1.0f - settings.momentum) * running_variance[c] + settings.momentum * (squares * inv_rows_minus_1);
  }
};

}  // namespace lockstep::kernels::batch_norm
