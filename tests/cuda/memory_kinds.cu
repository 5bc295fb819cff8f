// Memory beside cudaMalloc: variables of the device, managed, pitched, mapped, registered, and from pools.
#include <cuda_runtime.h>

#include <cstdlib>
#include <vector>

#include "check.h"

__constant__ float weights[4];
__device__ int counter = 3;
__device__ int table[8];
__managed__ int managed_sum;

__global__ void weigh(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x] * weights[threadIdx.x % 4];
  atomicAdd(&counter, 1);
  table[threadIdx.x % 8] = threadIdx.x % 8;
}

__global__ void add_one(int* x) {
  x[threadIdx.x] += 1;
  atomicAdd(&managed_sum, x[threadIdx.x]);
}

__global__ void number_rows(float* x, size_t pitch) {
  float* const row = (float*)((char*)x + blockIdx.x * pitch);
  row[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
}

int main() {
  const float factors[4] = {1, 10, 100, 1000};
  CHECK_CUDA(cudaMemcpyToSymbol(weights, factors, sizeof factors));
  CHECK_CUDA(cudaMemcpyToSymbol(weights, &factors[2], sizeof(float), sizeof(float)));
  CHECK(cudaMemcpyToSymbol(weights, factors, sizeof factors + 1) == cudaErrorInvalidValue);
  (void)cudaGetLastError();
  float *x, *y, host[8];
  CHECK_CUDA(cudaMallocManaged(&x, 8 * sizeof(float)));
  CHECK_CUDA(cudaMalloc(&y, 8 * sizeof(float)));
  for (int i = 0; i < 8; ++i) x[i] = i;
  weigh<<<1, 8>>>(x, y);
  CHECK_CUDA(cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost));
  const float wanted[4] = {1, 100, 100, 1000};
  for (int i = 0; i < 8; ++i) CHECK(host[i] == i * wanted[i % 4]);
  int count = 0, values[8];
  CHECK_CUDA(cudaMemcpyFromSymbol(&count, counter, sizeof count));
  CHECK(count == 11);
  void* address = nullptr;
  size_t size = 0;
  CHECK_CUDA(cudaGetSymbolAddress(&address, table));
  CHECK_CUDA(cudaGetSymbolSize(&size, table));
  CHECK(size == sizeof values);
  CHECK_CUDA(cudaMemcpy(values, address, sizeof values, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 8; ++i) CHECK(values[i] == i);
  cudaPointerAttributes attributes;
  CHECK_CUDA(cudaPointerGetAttributes(&attributes, x));
  CHECK(attributes.type == cudaMemoryTypeManaged);
  CHECK_CUDA(cudaFree(x));

  // Mapped and registered host memory.
  int *mapped, *seen;
  CHECK_CUDA(cudaHostAlloc(&mapped, 8 * sizeof(int), cudaHostAllocMapped));
  CHECK_CUDA(cudaHostGetDevicePointer(&seen, mapped, 0));
  for (int i = 0; i < 8; ++i) mapped[i] = i;
  managed_sum = 0;
  add_one<<<1, 8>>>(seen);
  std::vector<int> own(8, 5);
  CHECK_CUDA(cudaHostRegister(own.data(), 8 * sizeof(int), cudaHostRegisterMapped));
  CHECK(cudaHostRegister(own.data(), 8 * sizeof(int), 0) == cudaErrorHostMemoryAlreadyRegistered);
  (void)cudaGetLastError();
  CHECK_CUDA(cudaHostGetDevicePointer(&seen, own.data(), 0));
  add_one<<<1, 8>>>(seen);
  CHECK_CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < 8; ++i) CHECK(mapped[i] == i + 1 && own[i] == 6);
  CHECK(managed_sum == 36 + 48);
  CHECK_CUDA(cudaHostUnregister(own.data()));
  CHECK(cudaHostUnregister(own.data()) == cudaErrorHostMemoryNotRegistered);
  (void)cudaGetLastError();
  CHECK_CUDA(cudaFreeHost(mapped));

  // Rows with a pitch.
  size_t pitch = 0;
  float* rows;
  CHECK_CUDA(cudaMallocPitch(&rows, &pitch, 10 * sizeof(float), 3));
  CHECK(pitch >= 10 * sizeof(float) && pitch % 256 == 0);
  number_rows<<<3, 10>>>(rows, pitch);
  float packed[3][10];
  CHECK_CUDA(
      cudaMemcpy2D(packed, sizeof packed[0], rows, pitch, sizeof packed[0], 3, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 30; ++i) CHECK(packed[i / 10][i % 10] == i / 10 * 100 + i % 10);
  CHECK(cudaMemcpy2D(packed, 8, rows, pitch, sizeof packed[0], 3, cudaMemcpyDeviceToHost) ==
        cudaErrorInvalidPitchValue);
  (void)cudaGetLastError();
  CHECK_CUDA(cudaMemset2D(rows, pitch, 0, sizeof packed[0], 2));
  CHECK_CUDA(
      cudaMemcpy2D(packed, sizeof packed[0], rows, pitch, sizeof packed[0], 3, cudaMemcpyDeviceToHost));
  CHECK(packed[1][9] == 0 && packed[2][9] == 209);

  // A pool.
  cudaMemPool_t pool;
  unsigned long long keep = ~0ull, used = 0;
  CHECK_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  int* pooled;
  CHECK_CUDA(cudaMallocFromPoolAsync(&pooled, 1 << 20, pool, stream));
  CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK(used >= 1 << 20);
  CHECK_CUDA(cudaMemsetAsync(pooled, 0, 1 << 20, stream));
  add_one<<<1, 8, 0, stream>>>(pooled);
  CHECK_CUDA(cudaMemcpyAsync(values, pooled, sizeof values, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaFreeAsync(pooled, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(values[7] == 1);
  CHECK_CUDA(cudaStreamDestroy(stream));
  return failures() > 0;
}
