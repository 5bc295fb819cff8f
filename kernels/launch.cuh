// One kernel source, two machines. This file is the only place where the two differ: nvcc compiles the GPU
// half, g++ the half that hands the same kernels to hostcuda. Kernels come in five forms
// (docs/architecture.md has a table), which are launched in three ways, and a fourth in kernels/map.cuh:
//   launch_elements(stream, n, f)        f(i) for every i in [0, n); independent elements
//   launch_blocks<kThreads>(kernels, ..) a kernel templated on its block size; one thread per block on a CPU
//   launch(kernel, grid, block, ..)      any CUDA kernel, __syncthreads and shuffles included
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/check.h"

#ifndef __CUDACC__
#include <hostcuda/forecast.h>
#include <hostcuda/launch.h>
#endif

namespace lockstep::kernels {

#ifdef __CUDACC__
inline constexpr bool kOnGpu = true;
#define LOCKSTEP_UNROLL _Pragma("unroll")
#define LOCKSTEP_COMPILED_ALONE __forceinline__
#else
inline constexpr bool kOnGpu = false;
#define LOCKSTEP_UNROLL _Pragma("GCC unroll 32")
// As fibers, g++ may contract products and sums of neighbouring elements differently: then bits would differ.
#define LOCKSTEP_COMPILED_ALONE __attribute__((noinline))
#endif

// A stream that remembers where it was handed to a launch, so that an error can name the launcher.
struct LaunchStream {
  cudaStream_t stream;
  std::source_location site;
  LaunchStream(cudaStream_t s, std::source_location where = std::source_location::current())
      : stream(s), site(where) {}
};

// Whether element and block kernels that this host thread launches run at their GPU block size, as fibers on
// a CPU: always in checked mode, while profiled, and where a test compares the two forms of a kernel. A GPU
// has but this form.
#ifdef __CUDACC__
inline thread_local bool at_gpu_block_size = true;
#else
inline thread_local bool at_gpu_block_size = hostcuda::at_gpu_block_sizes();
#endif

// The grid-stride loop behind launch_elements, wherever a thread is a CUDA thread.
template <typename F>
__global__ void elements_kernel(int64_t n, F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

inline constexpr int kElementsBlock = 256;
inline unsigned elements_grid(int64_t n) {
  const int64_t blocks = (n + kElementsBlock - 1) / kElementsBlock;
  return static_cast<unsigned>(blocks < 4096 ? blocks : 4096);
}

#ifdef __CUDACC__

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, LaunchStream stream,
            Arguments&&... arguments) {
  // Not <<<>>>: that tells of a failure by the last error alone, where one that the caller left looks the
  // same.
  std::tuple<std::decay_t<Parameters>...> parameters(static_cast<Parameters>(arguments)...);
  const cudaError_t status = std::apply(
      [&](auto&... parameter) {
        void* addresses[] = {&parameter..., nullptr};
        return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, addresses, shared_bytes,
                                stream.stream);
      },
      parameters);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();  // thrown, so no later call may find it again
    lockstep::detail::throw_cuda(status, stream.site.function_name(), stream.site.file_name(),
                                 static_cast<int>(stream.site.line()));
  }
}

template <int kThreads, typename Kernels, typename... Arguments>
void launch_blocks(Kernels kernels, dim3 grid, LaunchStream stream, Arguments&&... arguments) {
  launch(kernels(std::integral_constant<int, kThreads>{}), grid, dim3(kThreads), 0, stream,
         std::forward<Arguments>(arguments)...);
}

// f is a functor or a [=] __device__ lambda, called once for every i in [0, n).
template <typename F>
void launch_elements(LaunchStream stream, int64_t n, F f) {
  if (n == 0) return;
  launch(elements_kernel<F>, dim3(elements_grid(n)), dim3(kElementsBlock), 0, stream, n, f);
}

// The dynamic shared memory of a block, which CUDA spells `extern __shared__ T name[]`.
template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ unsigned char lockstep_dynamic_shared[];
  return reinterpret_cast<T*>(lockstep_dynamic_shared);
}

#else

[[noreturn]] inline void throw_launch_error(cudaError_t status, const hostcuda::LaunchSite& site) {
  cudaGetLastError();  // thrown, so no later call may find it again
  lockstep::detail::throw_cuda(status, site.function, site.file, site.line);
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, LaunchStream stream,
            Arguments&&... arguments) {
  const hostcuda::LaunchSite site{stream.site.file_name(), static_cast<int>(stream.site.line()),
                                  stream.site.function_name()};
  const cudaError_t status = hostcuda::enqueue_kernel(
      {reinterpret_cast<const void*>(kernel), site, grid, block, shared_bytes,
       [kernel, parameters = std::tuple<std::decay_t<Parameters>...>(static_cast<Parameters>(arguments)...)] {
         std::apply(kernel, parameters);
       }},
      stream.stream);
  if (status != cudaSuccess) throw_launch_error(status, site);
}

// A block kernel runs with one thread per block, which turns its strided loops into contiguous ones and its
// block sums into the identity; in checked mode it runs at the GPU's block size, as fibers.
template <int kThreads, typename Kernels, typename... Arguments>
void launch_blocks(Kernels kernels, dim3 grid, LaunchStream stream, Arguments&&... arguments) {
  if (at_gpu_block_size)
    launch(kernels(std::integral_constant<int, kThreads>{}), grid, dim3(kThreads), 0, stream,
           std::forward<Arguments>(arguments)...);
  else
    launch(kernels(std::integral_constant<int, 1>{}), grid, dim3(1), 0, stream,
           std::forward<Arguments>(arguments)...);
}

template <typename F>
void launch_elements(LaunchStream stream, int64_t n, F f) {
  if (n == 0) return;
  if (at_gpu_block_size) {
    launch(elements_kernel<F>, dim3(elements_grid(n)), dim3(kElementsBlock), 0, stream, n, f);
    return;
  }
  const hostcuda::LaunchSite site{stream.site.file_name(), static_cast<int>(stream.site.line()),
                                  stream.site.function_name()};
  const cudaError_t status = hostcuda::enqueue_elements(
      n,
      [f](int64_t begin, int64_t end) {
        const F local = f;  // a copy on the stack: its pointers cannot alias what f writes
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) local(i);
      },
      site, stream.stream);
  if (status != cudaSuccess) throw_launch_error(status, site);
}

template <typename T>
T* dynamic_shared() {
  return static_cast<T*>(hostcuda::dynamic_shared_memory());
}

#endif

// Calls f with each of the flags as a std::bool_constant: what a kernel's template takes.
template <typename F>
void with_constants(F f) {
  f();
}
template <typename F, typename... Flags>
void with_constants(F f, bool flag, Flags... flags) {
  if (flag)
    with_constants([&](auto... rest) { f(std::true_type{}, rest...); }, flags...);
  else
    with_constants([&](auto... rest) { f(std::false_type{}, rest...); }, flags...);
}

// Wraps a kernel template `template <int kThreads, ...> __global__ void name(...)` for launch_blocks.
#define LOCKSTEP_BLOCK_KERNEL(name) [](auto threads) { return name<threads()>; }

template <int kThreads>
class BlockStride {
 public:
  struct Iterator {
    int64_t i;
    __device__ int64_t operator*() const { return i; }
    __device__ Iterator& operator++() {
      i += kThreads;
      return *this;
    }
    // The range ends at the first index that is not below n.
    __device__ bool operator!=(const Iterator& end) const { return i < end.i; }
  };
  __device__ explicit BlockStride(int64_t n) : n_(n) {}
  __device__ Iterator begin() const {
    if constexpr (kThreads == 1)
      return {0};
    else
      return {static_cast<int64_t>(threadIdx.x)};
  }
  __device__ Iterator end() const { return {n_}; }

 private:
  int64_t n_;
};

// for (int64_t i : block_stride<kThreads>(n)): this thread's share of [0, n) within its block.
template <int kThreads>
__device__ BlockStride<kThreads> block_stride(int64_t n) {
  return BlockStride<kThreads>(n);
}

// True in one thread of the block: the one that writes a result of the whole block.
template <int kThreads>
__device__ bool is_block_leader() {
  return kThreads == 1 || threadIdx.x == 0;
}

// A grid for kernels whose blocks walk over `items` (rows, images) with a stride of gridDim.x.
inline dim3 blocks_for(int64_t items) {
  return dim3(static_cast<unsigned>(items < 1 << 20 ? items : 1 << 20));
}

// The next kernel that is launched does so many floating point operations: for forecasts, nothing on a GPU.
inline void note_operations([[maybe_unused]] double operations) {
#ifndef __CUDACC__
  hostcuda::note_operations(operations);
#endif
}

namespace detail {

// See kernels/step_mark.h.
inline void mark_step_begin() {
#ifndef __CUDACC__
  hostcuda::begin_step();
#endif
}
inline void mark_step_end([[maybe_unused]] int64_t items) {
#ifndef __CUDACC__
  hostcuda::end_step(items);
#endif
}

// Combines one value a thread into one for the whole block, by warp shuffles and then across warps.
template <int kThreads, typename T, typename Combine>
__device__ T block_reduce(T value, T identity, Combine combine) {
  if constexpr (kThreads == 1) {
    return value;
  } else {
    static_assert(kThreads % 32 == 0, "a block reduction needs whole warps");
    constexpr int kWarps = kThreads / 32;
    __shared__ T partial[kWarps];
    for (int offset = 16; offset > 0; offset /= 2)
      value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();  // an earlier reduction of this block may still be reading `partial`
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    T total = identity;
    for (int warp = 0; warp < kWarps; ++warp) total = combine(total, partial[warp]);
    return total;
  }
}

// Combines f(i) over a thread's share of [0, n). A thread that is the whole block keeps kPartials results
// side by side: they vectorise without -ffast-math, and a sum of partial sums rounds less.
template <int kThreads, int kPartials, typename T, typename F, typename Combine>
__device__ T thread_reduce(int64_t n, T identity, F f, Combine combine) {
  if constexpr (kThreads == 1) {
    T partial[kPartials];
    for (int lane = 0; lane < kPartials; ++lane) partial[lane] = identity;
    int64_t i = 0;
    for (; i + kPartials <= n; i += kPartials)
      for (int lane = 0; lane < kPartials; ++lane) partial[lane] = combine(partial[lane], f(i + lane));
    const int rest = static_cast<int>(n - i);
    for (int lane = 0; lane < rest; ++lane) partial[lane] = combine(partial[lane], f(i + lane));
    for (int half = kPartials / 2; half > 0; half /= 2)
      for (int lane = 0; lane < half; ++lane) partial[lane] = combine(partial[lane], partial[lane + half]);
    return partial[0];
  } else {
    T result = identity;
    for (int64_t i : block_stride<kThreads>(n)) result = combine(result, f(i));
    return result;
  }
}

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  __device__ float operator()(float a, float b) const { return (a > b || a != a) ? a : b; }
};

}  // namespace detail

// The sum of `value` over the block's threads, in every thread. All threads of the block must call it.
template <int kThreads, typename T>
__device__ T block_sum(T value) {
  return detail::block_reduce<kThreads>(value, T(0), detail::Sum());
}

// The largest `value` of the block's threads, in every thread. NaN is passed on.
template <int kThreads>
__device__ inline float block_max(float value) {
  return detail::block_reduce<kThreads>(value, -__builtin_huge_valf(), detail::Max());
}

// The sum of f(i) over [0, n), in the type of f(i), in every thread of the block, in an order that depends on
// n alone.
template <int kThreads, int kPartials = 16, typename F>
__device__ auto block_sum(int64_t n, F f) {
  using T = decltype(f(n));
  return block_sum<kThreads>(detail::thread_reduce<kThreads, kPartials>(n, T(0), f, detail::Sum()));
}

// The largest f(i) over [0, n), in every thread of the block; -infinity for n = 0. NaN is passed on.
template <int kThreads, int kPartials = 16, typename F>
__device__ float block_max(int64_t n, F f) {
  return block_max<kThreads>(
      detail::thread_reduce<kThreads, kPartials>(n, -__builtin_huge_valf(), f, detail::Max()));
}

}  // namespace lockstep::kernels
