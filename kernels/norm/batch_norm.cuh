// What the kernels of batch normalisation share. Sums over rows go in two steps: a block has 128 rows of a
// tile of channels, which stay in cache for its second pass, and one more kernel combines these chunks.
#pragma once

#include <algorithm>

#include "kernels/channel_lanes.cuh"
#include "kernels/check.h"
#include "kernels/launch.cuh"
#include "kernels/norm/batch_norm.h"

namespace lockstep::kernels::batch_norm {

inline constexpr int64_t kChunkRows = 128;

inline int64_t chunk_count(int64_t rows) {
  return (rows + kChunkRows - 1) / kChunkRows;
}

// Channels [first, first + width) of a tile.
struct Tile {
  int first, width;
};

__device__ inline Tile tile_of(int index, int channels) {
  const int first = index * kTileChannels;
  return {first, channels - first < kTileChannels ? channels - first : kTileChannels};
}

__device__ inline int64_t rows_of_chunk(int64_t chunk, int64_t rows) {
  const int64_t left = rows - chunk * kChunkRows;
  return left < kChunkRows ? left : kChunkRows;
}

inline dim3 tile_grid(const BatchNormShape& s) {
  return dim3(static_cast<unsigned>((s.channels + kTileChannels - 1) / kTileChannels));
}

inline dim3 chunk_grid(const BatchNormShape& s) {
  return dim3(static_cast<unsigned>(chunk_count(s.rows)), tile_grid(s).x);
}

// Launches over rows, some thousand values per block.
template <typename Kernels, typename... Arguments>
void launch_rows(Kernels kernels, const BatchNormShape& s, LaunchStream stream, Arguments... arguments) {
  const int block_rows = std::max(1, (kOnGpu ? 2048 : 8192) / s.channels);
  launch_blocks<256>(kernels, dim3(static_cast<unsigned>((s.rows + block_rows - 1) / block_rows)), stream,
                     s.rows, s.channels, block_rows, arguments...);
}

// The workspace: two values a chunk and channel.
struct ChunkSums {
  float *first, *second;
  ChunkSums(void* workspace, const BatchNormShape& s)
      : first(static_cast<float*>(workspace)), second(first + chunk_count(s.rows) * s.channels) {}
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
