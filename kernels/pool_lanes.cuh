// The loops and vector types of pooling. Neighbouring channels are neighbours in memory, so a GPU gives each
// (column, channel) of a row a thread, and the CPU's one thread takes a vector of channels at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/lanes.cuh"

namespace lockstep::kernels {

namespace detail {
template <int kCount>
struct Vectors {
  typedef float Floats __attribute__((vector_size(kCount * sizeof(float))));
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

  static Floats load(const float* p) {
    Floats value;
    __builtin_memcpy(&value, p, sizeof(value));
    return value;
  }
  static void store(float* p, Floats value) { __builtin_memcpy(p, &value, sizeof(value)); }
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

}  // namespace lockstep::kernels
