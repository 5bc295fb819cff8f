// Shared memory: static, dynamic, of templates, of the file, and beyond 48 KB.
#include <cuda_runtime.h>

#include "check.h"

extern __shared__ float of_the_file[];

__global__ void transpose(const float* in, float* out) {
  __shared__ float tile[16][17];
  tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 16 + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

template <typename T>
__global__ void reverse(T* x) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* const values = reinterpret_cast<T*>(bytes);
  values[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  x[blockIdx.x * blockDim.x + threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

__global__ void rows(float* x) {
  extern __shared__ float row[][8];
  row[threadIdx.y][threadIdx.x] = threadIdx.y * 8 + threadIdx.x;
  __syncthreads();
  x[threadIdx.y * 8 + threadIdx.x] = row[(threadIdx.y + 1) % blockDim.y][threadIdx.x];
}

__global__ void rotate(float* x) {
  of_the_file[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = of_the_file[(threadIdx.x + 1) % blockDim.x];
}

__global__ void sum(int* result, int words) {
  extern __shared__ int many[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) many[i] = i;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int total = 0;
  for (int i = 0; i < words; ++i) total += many[i];
  *result = total;
}

int main() {
  float *x, *y, host[1024];
  CHECK_CUDA(cudaMalloc(&x, sizeof host));
  CHECK_CUDA(cudaMalloc(&y, sizeof host));
  for (int i = 0; i < 1024; ++i) host[i] = i;
  CHECK_CUDA(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));

  transpose<<<1, dim3(16, 16)>>>(x, y);
  CHECK_CUDA(cudaMemcpy(host, y, 256 * sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 256; ++i) CHECK(host[i] == i % 16 * 16 + i / 16);

  reverse<<<4, 256, 256 * sizeof(float)>>>(x);
  CHECK_CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 1024; ++i) CHECK(host[i] == i / 256 * 256 + 255 - i % 256);

  rows<<<1, dim3(8, 4), 32 * sizeof(float)>>>(y);
  CHECK_CUDA(cudaMemcpy(host, y, 32 * sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) CHECK(host[i] == (i + 8) % 32);

  rotate<<<1, 32, 32 * sizeof(float)>>>(y);
  CHECK_CUDA(cudaMemcpy(host, y, 32 * sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) CHECK(host[i] == ((i + 1) % 32 + 8) % 32);

  // Beyond 48 KB a kernel says so before.
  constexpr int kBytes = 64 << 10;
  int* total;
  CHECK_CUDA(cudaMalloc(&total, sizeof(int)));
  sum<<<1, 128, kBytes>>>(total, kBytes / 4);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK_CUDA(cudaFuncSetAttribute(sum, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  sum<<<1, 128, kBytes>>>(total, kBytes / 4);
  CHECK_CUDA(cudaGetLastError());
  int result = 0;
  CHECK_CUDA(cudaMemcpy(&result, total, sizeof result, cudaMemcpyDeviceToHost));
  CHECK(result == (kBytes / 4 - 1) * (kBytes / 8));
  CHECK(cudaFuncSetAttribute(sum, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20) ==
        cudaErrorInvalidValue);
  (void)cudaGetLastError();
  return failures() > 0;
}
