// Sums over the rows of a matrix, one per channel, by many blocks in one launch: block (x, y) sums a slice of
// the rows for a tile of the channels, and the block that comes last to a tile adds its slices up. Which
// block that is does not matter: within a slice row r goes to partial sum r % 8, slices likewise, and how
// rows are cut depends on their number and that of the channels alone. So do the bits, on both machines.
#pragma once

#include <algorithm>

#include "kernels/channel_lanes.cuh"
#include "kernels/launch.cuh"
#include "kernels/scratch.h"

namespace lockstep::kernels {

inline constexpr int kRowSums = 8;
inline constexpr int kTileChannels = 64;
inline constexpr int64_t kMostSlices = 256;
inline constexpr int64_t kSliceValues = 4096;  // of a tile, at least: 16 KB of floats

struct RowSlices {
  int64_t rows, slice_rows;
  int count;

  RowSlices(int64_t all_rows, int channels) : rows(all_rows) {
    const auto whole = [](int64_t n) { return (n + kRowSums - 1) / kRowSums * kRowSums; };
    slice_rows = whole(std::max((rows + kMostSlices - 1) / kMostSlices,
                                kSliceValues / std::clamp(channels, 1, kTileChannels)));
    count = static_cast<int>(std::max<int64_t>(1, (rows + slice_rows - 1) / slice_rows));
  }
  __device__ int64_t first(int64_t slice) const { return slice * slice_rows; }
  __device__ int64_t rows_of(int64_t slice) const {
    const int64_t left = rows - slice * slice_rows;
    return left < slice_rows ? left : slice_rows;
  }
};

inline int tile_count(int channels) {
  return (channels + kTileChannels - 1) / kTileChannels;
}

// Launches blocks (slice, tile). A GPU's thread has 16 bytes of a row of T, or one value where the number of
// channels or an address does not allow it; a block has 8 rows of its tile at once.
template <typename T, typename Kernels, typename... Arguments>
void launch_row_sums(Kernels kernels, const RowSlices& slices, int channels, bool aligned,
                     LaunchStream stream, const Arguments&... arguments) {
  const dim3 grid(static_cast<unsigned>(slices.count), static_cast<unsigned>(tile_count(channels)));
  if (aligned && channels % kPackOf<T> == 0)
    launch_blocks<kRowSums * kTileChannels / kPackOf<T>>(kernels, grid, stream, arguments...);
  else
    launch_blocks<kRowSums * kTileChannels>(kernels, grid, stream, arguments...);
}

// Channels [first, first + width) of a tile.
struct Tile {
  int first, width;
};

__device__ inline Tile tile_of(int index, int channels) {
  const int first = index * kTileChannels;
  return {first, channels - first < kTileChannels ? channels - first : kTileChannels};
}

// Calls f(lanes, channel, writes), so that every channel of the tile is handled. All threads of the block
// call f equally often, so f may call sum_rows; `writes` is true in the one thread that stores what f
// computed for the channel. On the CPU the last vector overlaps its predecessor.
template <int kThreads, typename F>
__device__ void for_each_channel_in_tile(const Tile& tile, F f) {
  if constexpr (kThreads > 1) {
    constexpr int kPack = kRowSums * kTileChannels / kThreads;
    constexpr int kLanes = kTileChannels / kPack;
    const int channel = static_cast<int>(threadIdx.x) % kLanes * kPack;
    const bool present = channel < tile.width;
    f(ThreadLanes<kPack>{}, tile.first + (present ? channel : tile.width - kPack),
      present && threadIdx.x < kLanes);
  } else {
    const auto each = [&](auto lanes) {
      constexpr int kStep = decltype(lanes)::kChannels;
      for (int c = 0; c < tile.width; c += kStep)
        f(lanes, tile.first + (c + kStep <= tile.width ? c : tile.width - kStep), true);
    };
    constexpr int kMiddle = kVectorLanes < 8 ? kVectorLanes : 8;
    if (tile.width >= kVectorLanes)
      each(ChannelLanes<kVectorLanes>{});
    else if (tile.width >= kMiddle)
      each(ChannelLanes<kMiddle>{});
    else if (tile.width >= 4)
      each(ChannelLanes<4>{});
    else
      each(ChannelLanes<1>{});
  }
}

// The sum of f(row) over [0, rows), a value per channel, in every thread of the block. Inside
// for_each_channel_in_tile only.
template <int kThreads, typename Lanes, typename F>
__device__ typename Lanes::Floats sum_rows(int64_t rows, F f) {
  using Floats = typename Lanes::Floats;
  Floats total = {};
  if constexpr (kThreads == 1) {
    Floats sum[kRowSums] = {};
    int64_t row = 0;
    for (; row + kRowSums <= rows; row += kRowSums) {
      LOCKSTEP_UNROLL
      for (int j = 0; j < kRowSums; ++j) sum[j] += f(row + j);
    }
    LOCKSTEP_UNROLL
    for (int j = 0; j < kRowSums; ++j)
      if (row + j < rows) sum[j] += f(row + j);
    LOCKSTEP_UNROLL
    for (const Floats& part : sum) total += part;
  } else {
    constexpr int kLanes = kThreads / kRowSums;
    __shared__ __align__(16) float memory[kRowSums * kTileChannels];
    auto* const sum = reinterpret_cast<Floats*>(memory);
    Floats own = {};
#pragma unroll 4
    for (int64_t row = threadIdx.x / kLanes; row < rows; row += kRowSums) own += f(row);
    __syncthreads();  // an earlier sum may still be read
    sum[threadIdx.x] = own;
    __syncthreads();
    for (int j = 0; j < kRowSums; ++j) total += sum[j * kLanes + threadIdx.x % kLanes];
  }
  return total;
}

// True in all threads of the block that is the last of `blocks` to come here with this ticket, which then
// sees what all of them have written.
template <int kThreads>
__device__ bool is_last_block(unsigned* ticket, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (is_block_leader<kThreads>())
    last = atomicInc(ticket, blocks - 1) == blocks - 1;  // the last sets it to 0
  __syncthreads();
  __threadfence();
  return last;
}

// Calls combine(tile) in the block that comes last to its tile. Where there are more tiles than tickets, one
// block combines all that share a ticket.
template <int kThreads, typename Combine>
__device__ void combine_slices(unsigned* tickets, int channels, Combine combine) {
  const auto tiles = gridDim.y;
  const unsigned ticket = blockIdx.y % kTickets;
  const unsigned sharing = (tiles - ticket + kTickets - 1) / kTickets;
  if (!is_last_block<kThreads>(tickets + ticket, gridDim.x * sharing)) return;
  for (unsigned tile = ticket; tile < tiles; tile += kTickets)
    combine(tile_of(static_cast<int>(tile), channels));
}

}  // namespace lockstep::kernels
