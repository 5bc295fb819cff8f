// printf and a failing assert in a kernel: its message names block and thread, and the error is sticky.
#include <cuda_runtime.h>

#include <cassert>

#include "check.h"

__global__ void speak() {
  if (threadIdx.x == 1) printf("block %d says %s\n", blockIdx.x, "hello");
}

__global__ void below(int limit) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(i < limit);
}

int main() {
  speak<<<2, 2>>>();
  CHECK_CUDA(cudaDeviceSynchronize());
  below<<<2, 32>>>(64);
  CHECK_CUDA(cudaDeviceSynchronize());
  below<<<2, 32>>>(60);
  CHECK(cudaDeviceSynchronize() == cudaErrorAssert);
  CHECK(cudaGetLastError() == cudaErrorAssert);
  return failures() > 0;
}
