// Lanes: the values that neighbouring threads of a warp hold. On a GPU a lane is a thread and holds one
// float; where a block has one thread (launch_blocks on a CPU), that thread carries all lanes in a vector
// register. Kernels written over them use the same indices and the same order of sums on both.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/launch.cuh"

namespace lockstep::kernels {

// The floats of a vector register, and the number of registers.
#if defined(__AVX512F__)
inline constexpr int kVectorLanes = 16;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorLanes = 8;
inline constexpr int kVectorRegisters = 16;
#else
inline constexpr int kVectorLanes = 4;
inline constexpr int kVectorRegisters = 16;
#endif

// The lanes of a block of kThreads threads, which must be one warp.
template <int kThreads>
struct LaneGroup {
  static_assert(kThreads == 32, "lanes are the threads of one warp");
  static constexpr int kLanes = kThreads;
  static constexpr int kVectors = 1;  // groups of lanes that a thread should work on at a time
  using Lanes = float;

  static __device__ Lanes broadcast(float value) { return value; }
  static __device__ Lanes load(const float* p) { return p[threadIdx.x]; }
  static __device__ void store(float* p, Lanes value) { p[threadIdx.x] = value; }

  // to[i * to_pitch + lane] = from[lane * from_pitch + i] for i in [0, n); zero in lanes >= present.
  static __device__ void gather(const float* from, int64_t from_pitch, int present, int64_t n, float* to,
                                int64_t to_pitch) {
    const int lane = static_cast<int>(threadIdx.x);
    for (int64_t i = 0; i < n; ++i)
      to[i * to_pitch + lane] = lane < present ? from[lane * from_pitch + i] : 0.0f;
  }

  // to[lane * to_pitch + i] = from[i * from_pitch + lane] for i in [0, n) and lanes < present.
  static __device__ void scatter(const float* from, int64_t from_pitch, int64_t n, float* to,
                                 int64_t to_pitch, int present) {
    const int lane = static_cast<int>(threadIdx.x);
    if (lane >= present) return;
    for (int64_t i = 0; i < n; ++i) to[lane * to_pitch + i] = from[i * from_pitch + lane];
  }

  // Lane i of the result (of sums[i / kLanes]) is the sum of values[i] over the lanes.
  template <int kCount, int kSums>
  static __device__ void fold(const Lanes (&values)[kCount], Lanes (&sums)[kSums]) {
    static_assert(kSums == 1 && kCount <= kLanes);
    sums[0] = 0.0f;
    LOCKSTEP_UNROLL
    for (int i = 0; i < kCount; ++i) {
      float total = values[i];
      for (int offset = kLanes / 2; offset > 0; offset /= 2)
        total += __shfl_xor_sync(0xffffffffu, total, offset);
      if (static_cast<int>(threadIdx.x) == i) sums[0] = total;
    }
  }
};

// The lanes of one thread: a vector register.
template <>
struct LaneGroup<1> {
  static constexpr int kLanes = kVectorLanes;
  static constexpr int kVectors = 2;
  typedef float Lanes __attribute__((vector_size(kVectorLanes * sizeof(float))));
  typedef int Indices __attribute__((vector_size(kVectorLanes * sizeof(int))));

  static Lanes broadcast(float value) { return Lanes{} + value; }
  static Lanes load(const float* p) {
    Lanes value;
    __builtin_memcpy(&value, p, sizeof(value));
    return value;
  }
  static void store(float* p, Lanes value) { __builtin_memcpy(p, &value, sizeof(value)); }

  // Blocks of kLanes x kLanes are transposed in registers; the last one overlaps its predecessor.
  static void gather(const float* from, int64_t from_pitch, int present, int64_t n, float* to,
                     int64_t to_pitch) {
    if (n < kLanes) {
      for (int64_t i = 0; i < n; ++i)
        for (int lane = 0; lane < kLanes; ++lane)
          to[i * to_pitch + lane] = lane < present ? from[lane * from_pitch + i] : 0.0f;
    } else if (present == kLanes) {
      gather_blocks<true>(from, from_pitch, present, n, to, to_pitch);
    } else {
      gather_blocks<false>(from, from_pitch, present, n, to, to_pitch);
    }
  }

  static void scatter(const float* from, int64_t from_pitch, int64_t n, float* to, int64_t to_pitch,
                      int present) {
    if (n < kLanes) {
      for (int lane = 0; lane < present; ++lane)
        for (int64_t i = 0; i < n; ++i) to[lane * to_pitch + i] = from[i * from_pitch + lane];
    } else if (present == kLanes) {
      scatter_blocks<true>(from, from_pitch, n, to, to_pitch, present);
    } else {
      scatter_blocks<false>(from, from_pitch, n, to, to_pitch, present);
    }
  }

  // Lane i % kLanes of sums[i / kLanes] is the sum of values[i] over the lanes: a tree over halves of the
  // vector, in which two values share a vector from the first step on, four from the second.
  template <int kCount, int kSums>
  static void fold(const Lanes (&values)[kCount], Lanes (&sums)[kSums]) {
    static_assert(kSums == (kCount + kLanes - 1) / kLanes);
    LOCKSTEP_UNROLL
    for (int first = 0; first < kCount; first += kLanes) {
      Lanes rows[kLanes];
      LOCKSTEP_UNROLL
      for (int i = 0; i < kLanes; ++i) rows[i] = first + i < kCount ? values[first + i] : Lanes{};
      fold_halves(rows);
      sums[first / kLanes] = rows[0];
    }
  }

 private:
  template <bool kAll>
  static void gather_blocks(const float* from, int64_t from_pitch, int present, int64_t n, float* to,
                            int64_t to_pitch) {
    for (int64_t block = 0; block < n; block += kLanes) {
      const int64_t first = block + kLanes <= n ? block : n - kLanes;
      Lanes rows[kLanes];
      LOCKSTEP_UNROLL
      for (int lane = 0; lane < kLanes; ++lane)
        rows[lane] = kAll || lane < present ? load(from + lane * from_pitch + first) : Lanes{};
      transpose(rows);
      LOCKSTEP_UNROLL
      for (int i = 0; i < kLanes; ++i) store(to + (first + i) * to_pitch, rows[i]);
    }
  }

  template <bool kAll>
  static void scatter_blocks(const float* from, int64_t from_pitch, int64_t n, float* to, int64_t to_pitch,
                             int present) {
    for (int64_t block = 0; block < n; block += kLanes) {
      const int64_t first = block + kLanes <= n ? block : n - kLanes;
      Lanes rows[kLanes];
      LOCKSTEP_UNROLL
      for (int i = 0; i < kLanes; ++i) rows[i] = load(from + (first + i) * from_pitch);
      transpose(rows);
      LOCKSTEP_UNROLL
      for (int lane = 0; lane < kLanes; ++lane)
        if (kAll || lane < present) store(to + lane * to_pitch + first, rows[lane]);
    }
  }

  // Exchanges the off-diagonal blocks of kBlock x kBlock values of two rows that are kBlock apart.
  template <int kBlock, int... kIndex>
  static void exchange(Lanes& a, Lanes& b, std::integer_sequence<int, kIndex...>) {
    const Indices low = {((kIndex & kBlock) != 0 ? kVectorLanes + (kIndex ^ kBlock) : kIndex)...};
    const Indices high = {((kIndex & kBlock) != 0 ? kVectorLanes + kIndex : (kIndex ^ kBlock))...};
    const Lanes upper = __builtin_shuffle(a, b, low);
    b = __builtin_shuffle(a, b, high);
    a = upper;
  }

  template <int kBlock = kVectorLanes / 2>
  static void transpose(Lanes (&rows)[kLanes]) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kLanes; ++i)
      if ((i & kBlock) == 0)
        exchange<kBlock>(rows[i], rows[i + kBlock], std::make_integer_sequence<int, kVectorLanes>());
    if constexpr (kBlock > 1) transpose<kBlock / 2>(rows);
  }

  template <int kBlock = kVectorLanes / 2>
  static void fold_halves(Lanes (&rows)[kLanes]) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kBlock; ++i) {
      exchange<kBlock>(rows[i], rows[i + kBlock], std::make_integer_sequence<int, kVectorLanes>());
      rows[i] += rows[i + kBlock];
    }
    if constexpr (kBlock > 1) fold_halves<kBlock / 2>(rows);
  }
};

}  // namespace lockstep::kernels
