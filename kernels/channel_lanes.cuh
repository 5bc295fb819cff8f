// Loops over neighbouring channels, which are neighbours in memory: a GPU gives each, or each 16 bytes of
// them, a thread, and the CPU's one thread takes a vector of them at a time.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/float_types.h"
#include "kernels/lanes.cuh"
#include "kernels/pack.cuh"

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
  static Floats load_any(const float* p) { return load(p); }
  static void store_any(float* p, Floats value) { store(p, value); }
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
  static __device__ Floats load_any(const float* p) { return *p; }
  static __device__ void store_any(float* p, Floats value) { *p = value; }
  static __device__ Floats load(const __nv_bfloat16* p) { return to_float(*p); }
  static __device__ void store(__nv_bfloat16* p, Floats value) { *p = from_float<__nv_bfloat16>(value); }
  static __device__ Ints load_bytes(const uint8_t* p) { return *p; }
  static __device__ void store_bytes(uint8_t* p, Ints value) { *p = static_cast<uint8_t>(value); }
};

// The channels of one thread of a GPU, at addresses that are multiples of 16 but for load_any and store_any.
template <int kCount>
struct PackLanes {
  static constexpr int kChannels = kCount;
  using Floats = Pack<kCount>;
  template <typename T>
  static __device__ Floats load(const T* p) {
    return load_pack<kCount>(p);
  }
  template <typename T>
  static __device__ void store(T* p, const Floats& value) {
    store_pack(p, value);
  }
  static __device__ Floats load_any(const float* p) {
    Floats value;
    for (int i = 0; i < kCount; ++i) value[i] = p[i];
    return value;
  }
  static __device__ void store_any(float* p, const Floats& value) {
    for (int i = 0; i < kCount; ++i) p[i] = value[i];
  }
};

// What a thread of a GPU has: a channel, or a pack of them.
template <int kCount>
struct ThreadLanes : PackLanes<kCount> {};
template <>
struct ThreadLanes<1> : ChannelLanes<1> {};

// value, or 0 where that is negative; NaN passes.
template <typename Floats>
__device__ Floats rectified(const Floats& value) {
  return value <= Floats{} ? Floats{} : value;
}
template <int kCount>
__device__ Pack<kCount> rectified(const Pack<kCount>& value) {
  Pack<kCount> result;
  for (int i = 0; i < kCount; ++i) result[i] = rectified(value[i]);
  return result;
}

// value where `gate` is positive, else 0.
template <typename Floats>
__device__ Floats where_positive(const Floats& gate, const Floats& value) {
  return gate > Floats{} ? value : Floats{};
}
template <int kCount>
__device__ Pack<kCount> where_positive(const Pack<kCount>& gate, const Pack<kCount>& value) {
  Pack<kCount> result;
  for (int i = 0; i < kCount; ++i) result[i] = where_positive(gate[i], value[i]);
  return result;
}

// Calls f(lanes, column, channel), lanes a ChannelLanes, so that every channel of every column of a row is
// handled, in ascending order. The last vector of a column overlaps its predecessor instead of leaving a
// rest. With kOverrun, 4 to 7 channels are handled as 8: f may then read and write up to 4 floats past a
// column's channels, which is done only where another column follows, whose own results are written later.
// Without, f never leaves its column.
template <int kThreads, bool kOverrun, typename F>
__device__ void for_each_channel(int columns, int channels, F f) {
  if constexpr (kThreads > 1) {
    // Where a thread begins, and how far it steps, in columns and channels: nothing is divided in the loop.
    const auto thread = static_cast<int>(threadIdx.x);
    const int column_step = kThreads / channels, channel_step = kThreads - column_step * channels;
    int column = thread / channels, channel = thread - column * channels;
    while (column < columns) {
      f(ChannelLanes<1>{}, column, channel);
      column += column_step;
      channel += channel_step;
      if (channel >= channels) {
        channel -= channels;
        ++column;
      }
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

// make(lanes, channel) gives a function of a row, which is called for each of `rows` rows, for all channels.
// A GPU's thread makes one such function, for kPack channels, and has every so many rows: what depends on the
// channel alone is read once, and nothing is divided in the loop. blockIdx.y counts groups of kThreads packs.
template <int kThreads, int kPack, typename Make>
__device__ void for_each_row(int rows, int channels, Make make) {
  if constexpr (kThreads > 1) {
    const int first = static_cast<int>(blockIdx.y) * kThreads;
    const int packs = channels / kPack - first;
    const int width = packs < kThreads ? packs : kThreads;
    const int step = kThreads / width;
    const int row_of_thread = static_cast<int>(threadIdx.x) / width;
    if (row_of_thread >= step) return;
    const int pack = first + static_cast<int>(threadIdx.x) - row_of_thread * width;
    const auto f = make(ThreadLanes<kPack>{}, pack * kPack);
#pragma unroll 4
    for (int row = row_of_thread; row < rows; row += step) f(row);
  } else {
    for_each_channel<kThreads, false>(rows, channels,
                                      [=](auto lanes, int row, int channel) { make(lanes, channel)(row); });
  }
}

}  // namespace lockstep::kernels
