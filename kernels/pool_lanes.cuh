// The loops and vector types of pooling. Neighbouring channels are neighbours in memory, so a GPU gives each
// (column, channel) of a row a thread, and the CPU's one thread takes a vector of channels at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/launch.cuh"

namespace lockstep::kernels {

// kCount neighbouring channels: their values, and small integers of the same number.
template <int kCount>
struct ChannelLanes {
  typedef float Floats __attribute__((vector_size(kCount * sizeof(float))));
  typedef int Ints __attribute__((vector_size(kCount * sizeof(int))));
  typedef uint8_t Bytes __attribute__((vector_size(kCount)));

  static Floats load(const float* p) {
    Floats value;
    __builtin_memcpy(&value, p, sizeof(value));
    return value;
  }
  static void store(float* p, Floats value) { __builtin_memcpy(p, &value, sizeof(value)); }
  static Ints load_bytes(const uint8_t* p) {
    Bytes bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    return __builtin_convertvector(bytes, Ints);
  }
  static void store_bytes(uint8_t* p, Ints value) {
    const Bytes bytes = __builtin_convertvector(value, Bytes);
    __builtin_memcpy(p, &bytes, sizeof(bytes));
  }
};

template <>
struct ChannelLanes<1> {
  using Floats = float;
  using Ints = int;
  static __device__ Floats load(const float* p) { return *p; }
  static __device__ void store(float* p, Floats value) { *p = value; }
  static __device__ Ints load_bytes(const uint8_t* p) { return *p; }
  static __device__ void store_bytes(uint8_t* p, Ints value) { *p = static_cast<uint8_t>(value); }
};

// Calls f(lanes, column, channel) so that every channel of every column of a row is handled, by `lanes`
// channels at a time from `channel` on, in ascending order. The last vector of a column overlaps its
// predecessor instead of leaving a rest. With kOverrun, 4 to 7 channels are handled as 8: f may then read
// and write up to 4 floats past a column's channels, which is done only where another column follows, whose
// own results are written later. Without, f never leaves its column.
template <int kThreads, bool kOverrun, typename F>
__device__ void for_each_channel(int columns, int channels, F f) {
  if constexpr (kThreads > 1) {
    for (int64_t i : block_stride<kThreads>(static_cast<int64_t>(columns) * channels)) {
      const unsigned item = static_cast<unsigned>(i);
      const unsigned column = item / static_cast<unsigned>(channels);
      f(std::integral_constant<int, 1>{}, static_cast<int>(column),
        static_cast<int>(item - column * static_cast<unsigned>(channels)));
    }
  } else {
    const auto vectors = [&](auto lanes, int column) {
      for (int c = 0; c < channels; c += lanes())
        f(lanes, column, c + lanes() <= channels ? c : channels - lanes());
    };
    constexpr std::integral_constant<int, kLaneChannels> kWide{};
    constexpr std::integral_constant < int, kLaneChannels<8 ? kLaneChannels : 8> kMiddle{};
    constexpr std::integral_constant<int, 4> kNarrow{};
    constexpr std::integral_constant<int, 1> kSingle{};
    int column = 0;
    if (channels >= kWide()) {
      for (; column < columns; ++column) vectors(kWide, column);
    } else if (channels >= kMiddle()) {
      for (; column < columns; ++column) vectors(kMiddle, column);
    } else if (channels >= kNarrow()) {
      if constexpr (kOverrun)
        for (; column + 1 < columns; ++column) f(kMiddle, column, 0);
      for (; column < columns; ++column) vectors(kNarrow, column);
    } else {
      for (; column < columns; ++column) vectors(kSingle, column);
    }
  }
}

}  // namespace lockstep::kernels
