// Element kernels that read and write arrays at one index: launch_map(stream, n, f, operands...) calls f with
// the operands' i-th values, as floats, for every i in [0, n). Operands are
//   const T*       read: f takes a float
//   T*             read and written: f takes a float&
//   Output<T>{p}   written: f takes a float&, which holds nothing
// A GPU's thread moves 16 bytes at once, where that is possible at one and the same index of all operands.
#pragma once

#include <tuple>

#include "kernels/float_types.h"
#include "kernels/launch.cuh"
#include "kernels/pack.cuh"

namespace lockstep::kernels {

template <typename T>
struct Output {
  T* address;
};
template <typename T>
Output(T*) -> Output<T>;

namespace detail {

template <typename Operand>
struct OperandOf;
template <typename T>
struct OperandOf<const T*> {
  using Type = T;
  static constexpr bool kReads = true, kWrites = false;
  static __host__ __device__ const T* address(const T* p) { return p; }
};
template <typename T>
struct OperandOf<T*> {
  using Type = T;
  static constexpr bool kReads = true, kWrites = true;
  static __host__ __device__ T* address(T* p) { return p; }
};
template <typename T>
struct OperandOf<Output<T>> {
  using Type = T;
  static constexpr bool kReads = false, kWrites = true;
  static __host__ __device__ T* address(Output<T> p) { return p.address; }
};

// kCount neighbouring values of an operand.
template <int kCount, typename Operand>
struct Loaded {
  using Of = OperandOf<Operand>;
  Operand operand;
  Pack<kCount> values;

  __host__ __device__ Loaded(Operand from, int64_t i) : operand(from) {
    if constexpr (Of::kReads && kCount == 1)
      values.value[0] = to_float(Of::address(operand)[i]);
    else if constexpr (Of::kReads)
      values = load_pack<kCount>(Of::address(operand) + i);
  }
  __host__ __device__ void store(int64_t i) const {
    if constexpr (Of::kWrites && kCount == 1)
      Of::address(operand)[i] = from_float<typename Of::Type>(values.value[0]);
    else if constexpr (Of::kWrites)
      store_pack(Of::address(operand) + i, values);
  }
};

// f of one element, out of a pack.
template <typename F, typename... Values>
LOCKSTEP_COMPILED_ALONE __host__ __device__ void map_one(const F& f, Values&... values) {
  f(values...);
}

template <int kCount, typename F, typename... Operands>
__host__ __device__ inline void map_loaded(int64_t i, const F& f, Loaded<kCount, Operands>... loaded) {
  if constexpr (kCount == 1)
    f(loaded.values.value[0]...);
  else
    for (int j = 0; j < kCount; ++j) map_one(f, loaded.values.value[j]...);
  (loaded.store(i), ...);
}

// Elements [head, head + whole packs) go as packs, those before and after one by one.
template <int kPack, typename F, typename... Operands>
__global__ void map_kernel(int64_t n, int64_t head, F f, Operands... operands) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t packs = (n - head) / kPack;
  for (int64_t pack = thread; pack < packs; pack += step) {
    const int64_t i = head + pack * kPack;
    map_loaded<kPack>(i, f, Loaded<kPack, Operands>(operands, i)...);
  }
  if constexpr (kPack == 1) return;
  const int64_t left = n - packs * kPack;
  for (int64_t j = thread; j < left; j += step) {
    const int64_t i = j < head ? j : packs * kPack + j;
    map_loaded<1>(i, f, Loaded<1, Operands>(operands, i)...);
  }
}

template <typename F, typename... Operands>
struct MapElement {
  F f;
  std::tuple<Operands...> operands;
  void operator()(int64_t i) const {
    std::apply([&](const Operands&... all) { map_loaded<1>(i, f, Loaded<1, Operands>(all, i)...); },
               operands);
  }
};

// How many elements lie before the first index at which all addresses are multiples of 16; -1 where there is
// none.
template <int kPack, typename... Operands>
int64_t head_of_packs(const Operands&... operands) {
  for (int64_t head = 0; head < kPack; ++head)
    if (are_aligned((OperandOf<Operands>::address(operands) + head)...)) return head;
  return -1;
}

}  // namespace detail

template <typename F, typename... Operands>
void launch_map(LaunchStream stream, int64_t n, F f, Operands... operands) {
  if (n == 0) return;
  if constexpr (!kOnGpu) {
    if (!at_gpu_block_size)
      return launch_elements(stream, n, detail::MapElement<F, Operands...>{f, {operands...}});
  }
  constexpr int kPack = (... || (sizeof(typename detail::OperandOf<Operands>::Type) == 2))
                            ? kPackOf<__nv_bfloat16>
                            : kPackOf<float>;
  const int64_t head = detail::head_of_packs<kPack>(operands...);
  if (head >= 0 && head + kPack <= n)
    launch(detail::map_kernel<kPack, F, Operands...>, dim3(elements_grid(n / kPack)), dim3(kElementsBlock), 0,
           stream, n, head, f, operands...);
  else
    launch(detail::map_kernel<1, F, Operands...>, dim3(elements_grid(n)), dim3(kElementsBlock), 0, stream, n,
           int64_t{0}, f, operands...);
}

}  // namespace lockstep::kernels
