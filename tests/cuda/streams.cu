// Streams with priorities, callbacks, a stream for each thread, and two devices with peer copies where there
// are two.
#include <cuda_runtime.h>

#include <atomic>
#include <thread>

#include "check.h"

__global__ void add(int* x, int amount) {
  x[threadIdx.x] += amount;
}

static std::atomic<int> called{0};

static void CUDART_CB callback(cudaStream_t, cudaError_t status, void* data) {
  if (status == cudaSuccess) called += *static_cast<int*>(data);
}

int main() {
  int least, greatest, priority;
  CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  CHECK_CUDA(cudaStreamGetPriority(stream, &priority));
  CHECK(priority == greatest);
  int *x, host[32], amount = 42;
  CHECK_CUDA(cudaMalloc(&x, sizeof host));
  CHECK_CUDA(cudaMemsetAsync(x, 0, sizeof host, stream));
  add<<<1, 32, 0, stream>>>(x, 5);
  CHECK_CUDA(cudaStreamAddCallback(stream, callback, &amount, 0));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(called == 42);

  std::thread([&] {
    add<<<1, 32, 0, cudaStreamPerThread>>>(x, 5);
    CHECK_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  CHECK_CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
  for (int value : host) CHECK(value == 10);

  int devices = 0, access = 0;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  if (devices > 1) CHECK_CUDA(cudaDeviceCanAccessPeer(&access, 1, 0));
  if (access) {
    int* there;
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cudaDeviceEnablePeerAccess(0, 0));
    CHECK_CUDA(cudaMalloc(&there, sizeof host));
    CHECK_CUDA(cudaMemcpyPeer(there, 1, x, 0, sizeof host));
    add<<<1, 32>>>(there, 1);
    add<<<1, 32>>>(x, 100);  // device 1 writes the memory of device 0
    CHECK_CUDA(cudaMemcpy(host, there, sizeof host, cudaMemcpyDeviceToHost));
    for (int value : host) CHECK(value == 11);
    CHECK_CUDA(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int value : host) CHECK(value == 110);
  } else {
    std::printf("one device, or no peer access: peer copies not tried\n");
  }
  CHECK_CUDA(cudaStreamDestroy(stream));
  return failures() > 0;
}
