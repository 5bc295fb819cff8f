// Two buffers into one, or all into all: a loop over the buffers inside the loop over the elements, so that
// every element of every buffer is read once and written once, 16 bytes at a time on a GPU.
#include "kernels/combine.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/float_types.h"
#include "kernels/launch.cuh"
#include "kernels/pack.cuh"

namespace lockstep::kernels {
namespace {

// What a T is computed in.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, int32_t>, int32_t, float>;

template <typename T>
__host__ __device__ Wide<T> widen(T value) {
  if constexpr (std::is_same_v<T, int32_t>)
    return value;
  else
    return to_float(value);
}
template <typename T>
__host__ __device__ T narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, int32_t>)
    return value;
  else
    return from_float<T>(value);
}

template <Combine kHow>
struct How {
  static __host__ __device__ float of(float a, float b) {
    if constexpr (kHow == Combine::sum)
      return a + b;
    else if constexpr (kHow == Combine::max)
      return a > b || a != a ? a : b;
    else
      return a < b || a != a ? a : b;
  }
  static __host__ __device__ int32_t of(int32_t a, int32_t b) {
    if constexpr (kHow == Combine::sum)  // wraps around, as on a GPU
      return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
    else if constexpr (kHow == Combine::max)
      return a > b ? a : b;
    else
      return a < b ? a : b;
  }
};

template <typename T>
__host__ __device__ T scaled(T value, float factor) {
  if constexpr (std::is_same_v<T, int32_t>)
    return value;
  else
    return value * factor;
}

// kBuffers buffers, or where that is 0 as many as `count` says, of which the first or all are written.
template <typename T, Combine kHow, int kBuffers, bool kAll>
struct Combination {
  using Element = T;
  T* buffers[kBuffers > 0 ? kBuffers : kMostBuffers];
  int count;
  float factor;

  __host__ __device__ void operator()(int64_t i) const {
    const int n = kBuffers > 0 ? kBuffers : count;
    Wide<T> value = widen(buffers[0][i]);
    LOCKSTEP_UNROLL
    for (int r = 1; r < n; ++r) value = How<kHow>::of(value, widen(buffers[r][i]));
    const T result = narrow<T>(kAll ? scaled(value, factor) : value);
    LOCKSTEP_UNROLL
    for (int r = 0; r < (kAll ? n : 1); ++r) buffers[r][i] = result;
  }

  // The same of the kPackOf<T> elements from i on.
  __device__ void pack(int64_t i) const {
    const int n = kBuffers > 0 ? kBuffers : count;
    union Bytes {
      uint4 word;
      T value[kPackOf<T>];
      __device__ Bytes() : word() {}
    };
    const auto load = [&](int r) {
      Bytes bytes;
      bytes.word = *reinterpret_cast<const uint4*>(buffers[r] + i);
      return bytes;
    };
    Wide<T> values[kPackOf<T>];
    const Bytes first = load(0);
    for (int j = 0; j < kPackOf<T>; ++j) values[j] = widen(first.value[j]);
    LOCKSTEP_UNROLL
    for (int r = 1; r < n; ++r) {
      const Bytes next = load(r);
      for (int j = 0; j < kPackOf<T>; ++j) values[j] = How<kHow>::of(values[j], widen(next.value[j]));
    }
    Bytes result;
    for (int j = 0; j < kPackOf<T>; ++j)
      result.value[j] = narrow<T>(kAll ? scaled(values[j], factor) : values[j]);
    LOCKSTEP_UNROLL
    for (int r = 0; r < (kAll ? n : 1); ++r) *reinterpret_cast<uint4*>(buffers[r] + i) = result.word;
  }
};

// Elements [head, head + whole packs) go as packs, those before and after one by one.
template <typename F>
__global__ void combine_kernel(int64_t n, int64_t head, F f) {
  constexpr int kPack = kPackOf<typename F::Element>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t packs = (n - head) / kPack;
  for (int64_t pack = thread; pack < packs; pack += step) f.pack(head + pack * kPack);
  for (int64_t j = thread; j < n - packs * kPack; j += step) f(j < head ? j : packs * kPack + j);
}

// The first index at which all buffers are at a multiple of 16 bytes; n where there is none.
template <typename T>
int64_t head_of_packs(T* const* buffers, int count, int64_t n) {
  for (int64_t head = 0; head < kPackOf<T> && head < n; ++head) {
    bool aligned = true;
    for (int r = 0; r < count; ++r) aligned = aligned && are_aligned(buffers[r] + head);
    if (aligned) return head;
  }
  return n;
}

template <typename T, Combine kHow, int kBuffers, bool kAll>
void launch_combination(T* const* buffers, int count, float factor, int64_t n, LaunchStream stream) {
  Combination<T, kHow, kBuffers, kAll> f{{}, count, factor};
  for (int r = 0; r < count; ++r) f.buffers[r] = buffers[r];
  if constexpr (!kOnGpu) {
    if (!at_gpu_block_size) return launch_elements(stream, n, f);
  }
  const int64_t head = head_of_packs(buffers, count, n);
  const int64_t threads = head < n ? (n - head) / kPackOf<T> + kPackOf<T> : n;
  launch(combine_kernel<decltype(f)>, dim3(elements_grid(threads)), dim3(kElementsBlock), 0, stream, n, head,
         f);
}

template <bool kAll, typename T>
void launch_for(Combine how, T* const* buffers, int count, float factor, int64_t n, LaunchStream stream) {
  if (n == 0) return;
  const auto with_count = [&](auto combine) {
    constexpr Combine kHow = combine();
    if constexpr (!kAll) return launch_combination<T, kHow, 2, false>(buffers, count, factor, n, stream);
    switch (count) {
      case 2:
        return launch_combination<T, kHow, 2, true>(buffers, count, factor, n, stream);
      case 4:
        return launch_combination<T, kHow, 4, true>(buffers, count, factor, n, stream);
      case 8:
        return launch_combination<T, kHow, 8, true>(buffers, count, factor, n, stream);
      default:
        return launch_combination<T, kHow, 0, true>(buffers, count, factor, n, stream);
    }
  };
  switch (how) {
    case Combine::sum:
      return with_count(std::integral_constant<Combine, Combine::sum>{});
    case Combine::max:
      return with_count(std::integral_constant<Combine, Combine::max>{});
    case Combine::min:
      return with_count(std::integral_constant<Combine, Combine::min>{});
  }
}

template <typename T>
struct Scale {
  T* x;
  float factor;
  __host__ __device__ void operator()(int64_t i) const { x[i] = from_float<T>(to_float(x[i]) * factor); }
};

}  // namespace

template <typename T>
void combine_into(Combine how, T* destination, const T* source, int64_t n, cudaStream_t stream) {
  T* const buffers[2] = {destination, const_cast<T*>(source)};  // the second is only read
  launch_for<false>(how, buffers, 2, 1.0f, n, stream);
}

template <typename T>
void combine_all(Combine how, const std::vector<T*>& buffers, float factor, int64_t n, cudaStream_t stream) {
  launch_for<true>(how, buffers.data(), static_cast<int>(buffers.size()), factor, n, stream);
}

template <typename T>
void scale(T* x, float factor, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, Scale<T>{x, factor});
}

#define LOCKSTEP_INSTANTIATE(T)                                             \
  template void combine_into(Combine, T*, const T*, int64_t, cudaStream_t); \
  template void combine_all(Combine, const std::vector<T*>&, float, int64_t, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
LOCKSTEP_INSTANTIATE(__half);
LOCKSTEP_INSTANTIATE(int32_t);
#undef LOCKSTEP_INSTANTIATE

template void scale(float*, float, int64_t, cudaStream_t);
template void scale(__nv_bfloat16*, float, int64_t, cudaStream_t);
template void scale(__half*, float, int64_t, cudaStream_t);

}  // namespace lockstep::kernels
