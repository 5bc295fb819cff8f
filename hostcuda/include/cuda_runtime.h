// The CUDA runtime on the CPU: the host API (cuda_runtime_api.h), what kernels are written in
// (hostcuda/device.h), and the typed forms that C++ callers use.
#pragma once

#define __CUDA_RUNTIME_H__  // which common helper headers ask for

#include <cuda_runtime_api.h>
#include <hostcuda/device.h>

template <typename T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}

template <typename T>
cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream);
}

template <typename T>
cudaError_t cudaMallocFromPoolAsync(T** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return cudaMallocFromPoolAsync(reinterpret_cast<void**>(pointer), bytes, pool, stream);
}

template <typename T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned int flags = 0) {
  return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}

template <typename T>
cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned int flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}

inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags) {
  return cudaEventCreateWithFlags(event, flags);
}

template <typename T>
cudaError_t cudaMallocManaged(T** pointer, size_t bytes, unsigned int flags = cudaMemAttachGlobal) {
  return cudaMallocManaged(reinterpret_cast<void**>(pointer), bytes, flags);
}

template <typename T>
cudaError_t cudaMallocPitch(T** pointer, size_t* pitch, size_t width, size_t height) {
  return cudaMallocPitch(reinterpret_cast<void**>(pointer), pitch, width, height);
}

template <typename T>
cudaError_t cudaHostGetDevicePointer(T** device_pointer, void* host_pointer, unsigned int flags) {
  return cudaHostGetDevicePointer(reinterpret_cast<void**>(device_pointer), host_pointer, flags);
}

template <typename T>
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, T* pointer, size_t bytes = 0,
                                     unsigned int flags = cudaMemAttachSingle) {
  return cudaStreamAttachMemAsync(stream, static_cast<void*>(pointer), bytes, flags);
}

template <typename T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* source, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return hostcudaMemcpyToSymbol(const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol, source, bytes,
                                offset, kind, nullptr, true);
}

template <typename T>
cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* source, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return hostcudaMemcpyToSymbol(const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol, source, bytes,
                                offset, kind, stream, false);
}

template <typename T>
cudaError_t cudaMemcpyFromSymbol(void* destination, T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return hostcudaMemcpyFromSymbol(destination, const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol,
                                  bytes, offset, kind, nullptr, true);
}

template <typename T>
cudaError_t cudaMemcpyFromSymbolAsync(void* destination, T& symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream = nullptr) {
  return hostcudaMemcpyFromSymbol(destination, const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol,
                                  bytes, offset, kind, stream, false);
}

template <typename T>
cudaError_t cudaGetSymbolAddress(void** address, T& symbol) {
  return hostcudaGetSymbolAddress(address, const_cast<std::remove_cv_t<T>*>(&symbol), sizeof symbol);
}

template <typename T>
cudaError_t cudaGetSymbolSize(size_t* size, T&) {
  if (size == nullptr) return cudaErrorInvalidValue;
  *size = sizeof(T);
  return cudaSuccess;
}
