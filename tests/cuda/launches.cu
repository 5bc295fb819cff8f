// Launches in every form: templates, overloads, pointers, parameters by value, by address, and errors.
#include <cuda_runtime.h>

#include "check.h"

template <typename T>
__global__ void fill(T* x, T value, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = value;
}

template <typename T, int kFactor>
__global__ void scale(T* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  x[i] *= kFactor;
}

__global__ void number(int* x) {
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  x[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = block * 1000 + thread;
}

__global__ void overloaded(int* x) {
  *x = 1;
}
__global__ void overloaded(float* x) {
  *x = 2;
}

struct Parameters {
  int values[16];
  float factor;
};

// Each thread changes its own copy.
__global__ void by_value(Parameters p, int count, int* result) {
  for (int& value : p.values) value += threadIdx.x;
  count += threadIdx.x;
  int sum = count;
  for (int value : p.values) sum += value;
  result[threadIdx.x] = sum;
}

template <typename F>
__global__ void apply(F f, int* x) {
  x[threadIdx.x] = f(threadIdx.x);
}

struct Square {
  __device__ int operator()(int i) const { return i * i; }
};

namespace inner {
__global__ void add(int* x, int amount = 5) {
  atomicAdd(x, amount);
}
}  // namespace inner

#define LAUNCH(kernel, ...) kernel<<<1, 32>>>(__VA_ARGS__)

int main() {
  constexpr int n = 1000;
  int* x;
  float* y;
  CHECK_CUDA(cudaMalloc(&x, n * sizeof(int)));
  CHECK_CUDA(cudaMalloc((void**)&y, n * sizeof(float)));
  static int host[n];

  fill<<<4, 64>>>(x, 7, n);
  scale<int, 3><<<(n + 255) / 256, 256>>>(x, n);
  CHECK_CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
  for (int value : host) CHECK(value == 21);

  number<<<dim3(2, 3, 2), dim3(4, 2, 3)>>>(x);
  CHECK_CUDA(cudaMemcpy(host, x, 12 * 24 * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 12 * 24; ++i) CHECK(host[i] == i / 24 * 1000 + i % 24);

  overloaded<<<1, 1>>>(x);
  overloaded<<<1, 1>>>(y);
  float first;
  CHECK_CUDA(cudaMemcpy(host, x, sizeof(int), cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaMemcpy(&first, y, sizeof first, cudaMemcpyDeviceToHost));
  CHECK(host[0] == 1 && first == 2);

  Parameters p{};
  for (int i = 0; i < 16; ++i) p.values[i] = i;
  by_value<<<1, 64>>>(p, 5, x);
  CHECK_CUDA(cudaMemcpy(host, x, 64 * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) CHECK(host[i] == 120 + 16 * i + 5 + i);

  LAUNCH(apply, Square(), x);
  CHECK_CUDA(cudaMemcpy(host, x, 32 * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) CHECK(host[i] == i * i);

  // As a pointer, by address, in a condition's branches, with a default parameter.
  CHECK_CUDA(cudaMemset(x, 0, sizeof(int)));
  void (*pointer)(int*, int) = inner::add;
  pointer<<<1, 2>>>(x, 10);
  for (int i = 0; i < 2; ++i) i == 0 ? inner::add<<<1, 1>>>(x) : (inner::add<<<2, 1>>>(x, 1));
  int amount = 100;
  void* arguments[] = {&x, &amount};
  CHECK_CUDA(cudaLaunchKernel((void*)inner::add, dim3(3), dim3(1), arguments, 0, nullptr));
  int count = n;
  void* scale_arguments[] = {&x, &count};
  CHECK_CUDA(cudaLaunchKernel((const void*)scale<int, 2>, dim3(4), dim3(256), scale_arguments, 0, 0));
  CHECK_CUDA(cudaMemcpy(host, x, sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(host[0] == 2 * (20 + 5 + 2 + 300));

  // What cannot be launched is the last error, once.
  fill<<<0, 64>>>(x, 7, n);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  fill<<<1, 2048>>>(x, 7, n);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK_CUDA(cudaDeviceSynchronize());

  int grid = 0, block = 0, resident = 0;
  CHECK_CUDA(cudaOccupancyMaxPotentialBlockSize(&grid, &block, number));
  CHECK(grid > 0 && block > 0 && block % 32 == 0);
  CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, scale<int, 3>, 256, 0));
  CHECK(resident > 0);
  cudaFuncAttributes attributes;
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, number));
  CHECK(attributes.maxThreadsPerBlock >= 256);
  CHECK_CUDA(cudaFree(x));
  CHECK_CUDA(cudaFree(y));
  return failures() > 0;
}
