// Loops over neighbouring channels, which are neighbours in memory: a GPU gives each a thread, and the CPU's
// one thread takes a vector of them at a time. First channel by channel along a row (pooling, normalising),
// then sums over rows, one per channel, that add in the same order on both machines.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/float_types.h"
#include "kernels/lanes.cuh"

namespace lockstep::kernels {

namespace detail {
template <int kCount>
struct Vectors {
  typedef float Floats __attribute__((vector_size(kCount * sizeof(float))));
  typedef uint32_t Words __attribute__((vector_size(kCount * sizeof(uint32_t))));
  typedef int Ints __attribute__((vector_size(kCount * sizeof(int))));
  typedef uint16_t Shorts __attribute__((vector_size(kCount * sizeof(uint16_t))));
  typedef uint8_t Bytes __attribute__((vector_size(kCount)));
};
}  // namespace detail

// kCount neighbouring channels: their values, and small integers of the same number.
template <int kCount>
struct ChannelLanes {
  static constexpr int kChannels = kCount;
  using Floats = typename detail::Vectors<kCount>::Floats;
  using Ints = typename detail::Vectors<kCount>::Ints;
  using Shorts = typename detail::Vectors<kCount>::Shorts;  // on the way up: g++ widens by steps of two
  using Bytes = typename detail::Vectors<kCount>::Bytes;
  using Words = typename detail::Vectors<kCount>::Words;  // the bits of Floats

  static Floats load(const float* p) {
    Floats value;
    __builtin_memcpy(&value, p, sizeof(value));
    return value;
  }
  static void store(float* p, Floats value) { __builtin_memcpy(p, &value, sizeof(value)); }
  // The upper halves of floats, rounded as __float2bfloat16_rn does.
  static Floats load(const __nv_bfloat16* p) {
    Shorts bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return reinterpret_cast<Floats>(__builtin_convertvector(bits, Words) << 16);
  }
  static void store(__nv_bfloat16* p, Floats value) {
    const Words bits = reinterpret_cast<Words>(value);
    Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    rounded = value != value ? Words{} + 0x7fff : rounded;
    const Shorts upper = __builtin_convertvector(rounded, Shorts);
    __builtin_memcpy(static_cast<void*>(p), &upper, sizeof(upper));
  }
  static Ints load_bytes(const uint8_t* p) {
    Bytes bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    return __builtin_convertvector(__builtin_convertvector(bytes, Shorts), Ints);
  }
  static void store_bytes(uint8_t* p, Ints value) {
    const Bytes bytes = __builtin_convertvector(value, Bytes);
    __builtin_memcpy(p, &bytes, sizeof(bytes));
  }
};

template <>
struct ChannelLanes<1> {
  static constexpr int kChannels = 1;
  using Floats = float;
  using Ints = int;
  static __device__ Floats load(const float* p) { return *p; }
  static __device__ void store(float* p, Floats value) { *p = value; }
  static __device__ Floats load(const __nv_bfloat16* p) { return to_float(*p); }
  static __device__ void store(__nv_bfloat16* p, Floats value) { *p = from_float<__nv_bfloat16>(value); }
  static __device__ Ints load_bytes(const uint8_t* p) { return *p; }
  static __device__ void store_bytes(uint8_t* p, Ints value) { *p = static_cast<uint8_t>(value); }
};

// Calls f(lanes, column, channel), lanes a ChannelLanes, so that every channel of every column of a row is
// handled, in ascending order. The last vector of a column overlaps its predecessor instead of leaving a
// rest. With kOverrun, 4 to 7 channels are handled as 8: f may then read and write up to 4 floats past a
// column's channels, which is done only where another column follows, whose own results are written later.
// Without, f never leaves its column.
template <int kThreads, bool kOverrun, typename F>
__device__ void for_each_channel(int columns, int channels, F f) {
  if constexpr (kThreads > 1) {
    for (int64_t i : block_stride<kThreads>(static_cast<int64_t>(columns) * channels)) {
      const unsigned item = static_cast<unsigned>(i);
      const unsigned column = item / static_cast<unsigned>(channels);
      f(ChannelLanes<1>{}, static_cast<int>(column),
        static_cast<int>(item - column * static_cast<unsigned>(channels)));
    }
  } else {
    const auto each = [&](auto lanes, int first_column) {
      constexpr int kStep = decltype(lanes)::kChannels;
      for (int column = first_column; column < columns; ++column)
        for (int c = 0; c < channels; c += kStep)
          f(lanes, column, c + kStep <= channels ? c : channels - kStep);
    };
    constexpr int kMiddle = kVectorLanes < 8 ? kVectorLanes : 8;
    if (channels >= kVectorLanes) {
      each(ChannelLanes<kVectorLanes>{}, 0);
    } else if (channels >= kMiddle) {
      each(ChannelLanes<kMiddle>{}, 0);
    } else if (channels >= 4) {
      int column = 0;
      if constexpr (kOverrun)
        for (; column + 1 < columns; ++column) f(ChannelLanes<kMiddle>{}, column, 0);
      each(ChannelLanes<4>{}, column);
    } else {
      each(ChannelLanes<1>{}, 0);
    }
  }
}

// Sums over rows: a block has a tile of neighbouring channels. Row r goes to partial sum r % 8, and the eight
// are added in turn. Each warp of a GPU block has one of them, for 32 channels; the CPU's one thread has all
// eight, for a vector of channels.
inline constexpr int kRowSums = 8;
inline constexpr int kTileThreads = 32 * kRowSums;
inline constexpr int kTileChannels = kOnGpu ? 32 : 64;

// Calls f(lanes, channel, writes), lanes a ChannelLanes, so that every one of the `width` channels from
// `first` on is handled. All threads of the block call f equally often, so f may call sum_rows; `writes` is
// true in the one thread that stores what f computed for the channel. The last vector overlaps its
// predecessor.
template <int kThreads, typename F>
__device__ void for_each_channel_in_tile(int first, int width, F f) {
  if constexpr (kThreads > 1) {
    static_assert(kThreads == kTileThreads);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int begin = 0; begin < width; begin += 32) {
      const bool present = begin + lane < width;
      f(ChannelLanes<1>{}, first + (present ? begin + lane : width - 1), present && threadIdx.x < 32);
    }
  } else {
    const auto each = [&](auto lanes) {
      constexpr int kStep = decltype(lanes)::kChannels;
      for (int c = 0; c < width; c += kStep) f(lanes, first + (c + kStep <= width ? c : width - kStep), true);
    };
    constexpr int kMiddle = kVectorLanes < 8 ? kVectorLanes : 8;
    if (width >= kVectorLanes)
      each(ChannelLanes<kVectorLanes>{});
    else if (width >= kMiddle)
      each(ChannelLanes<kMiddle>{});
    else if (width >= 4)
      each(ChannelLanes<4>{});
    else
      each(ChannelLanes<1>{});
  }
}

// The sum of f(row) over [0, rows), a value per channel, in every thread of the block. Inside
// for_each_channel_in_tile only.
template <int kThreads, typename Lanes, typename F>
__device__ typename Lanes::Floats sum_rows(int64_t rows, F f) {
  typename Lanes::Floats total = {};
  if constexpr (kThreads == 1) {
    typename Lanes::Floats sum[kRowSums] = {};
    int64_t row = 0;
    for (; row + kRowSums <= rows; row += kRowSums) {
      LOCKSTEP_UNROLL
      for (int j = 0; j < kRowSums; ++j) sum[j] += f(row + j);
    }
    LOCKSTEP_UNROLL
    for (int j = 0; j < kRowSums; ++j)
      if (row + j < rows) sum[j] += f(row + j);
    LOCKSTEP_UNROLL
    for (const auto& part : sum) total += part;
  } else {
    __shared__ float sum[kThreads];
    float own = 0.0f;
    for (int64_t row = threadIdx.x / 32; row < rows; row += kRowSums) own += f(row);
    __syncthreads();  // an earlier sum may still be read
    sum[threadIdx.x] = own;
    __syncthreads();
    for (int j = 0; j < kRowSums; ++j) total += sum[j * 32 + threadIdx.x % 32];
  }
  return total;
}

}  // namespace lockstep::kernels
