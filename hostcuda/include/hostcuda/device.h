// What kernels are written in: the CUDA keywords as macros, dim3 and the built-in variables. A placeholder
// with one thread a block, until the fibers are in.
#pragma once

#include <cmath>
#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __restrict__ __restrict
#define __shared__ static thread_local

struct uint3 {
  unsigned int x, y, z;
};

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
};

inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

inline void __syncthreads() {}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int, int = 32) {
  return value;
}
