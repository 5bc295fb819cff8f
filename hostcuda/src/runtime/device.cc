// Devices: their number, their properties, and which may reach whose memory.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/capture.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"
#include "hostcuda/src/runtime/processor.h"

namespace hostcuda {
namespace {

bool exists(int device) {
  return device >= 0 && device < config().devices;
}

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties = {};
  std::snprintf(properties.name, sizeof properties.name, "hostcuda device %d (CPU, %d thread%s%s)", device,
                config().threads, config().threads == 1 ? "" : "s",
                processor::has_fast_bfloat16() ? "" : ", bfloat16 computed in float32");
  properties.totalGlobalMem = config().memory;
  properties.sharedMemPerBlock = 48 << 10;
  properties.sharedMemPerBlockOptin = 163 << 10;  // as compute capability 8.0 has
  properties.sharedMemPerMultiprocessor = 164 << 10;
  properties.regsPerBlock = 65536;
  properties.warpSize = 32;
  properties.maxThreadsPerBlock = 1024;
  const int block[3] = {1024, 1024, 64}, grid[3] = {2147483647, 65535, 65535};
  std::copy(std::begin(block), std::end(block), properties.maxThreadsDim);
  std::copy(std::begin(grid), std::end(grid), properties.maxGridSize);
  properties.major = 8;  // what kernels may rely on: compute capability 8.0
  properties.multiProcessorCount = config().threads;
  properties.maxThreadsPerMultiProcessor = 1024;
  properties.concurrentKernels = 1;
  properties.pciBusID = device;
  properties.asyncEngineCount = 1;
  properties.unifiedAddressing = 1;
  properties.l2CacheSize = 1 << 20;
  properties.memoryPoolsSupported = 1;
  properties.cooperativeLaunch = 1;
  properties.canMapHostMemory = properties.managedMemory = properties.concurrentManagedAccess = 1;
  properties.pageableMemoryAccess = properties.hostNativeAtomicSupported = 1;
  properties.memPitch = 2147483647;
  properties.totalConstMem = 64 << 10;
  properties.textureAlignment = 512;
  properties.regsPerMultiprocessor = 65536;
  properties.maxBlocksPerMultiProcessor = 32;
  return properties;
}

}  // namespace
}  // namespace hostcuda

using namespace hostcuda;

namespace hostcuda {
int threads_per_device() {
  return config().threads;
}
bool checked_mode() {
  return config().checked;
}
bool at_gpu_block_sizes() {
  return config().checked || config().records();
}
}  // namespace hostcuda

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return plain_call([&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = config().devices;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return plain_call([&] {
    if (!exists(device)) return cudaErrorInvalidDevice;
    this_thread().device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return plain_call([&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = this_thread().device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return plain_call([&] {
    if (properties == nullptr) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    *properties = properties_of(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return plain_call([&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    const cudaDeviceProp properties = properties_of(device);
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
        *value = properties.maxThreadsPerBlock;
        return cudaSuccess;
      case cudaDevAttrMaxBlockDimX:
      case cudaDevAttrMaxBlockDimY:
      case cudaDevAttrMaxBlockDimZ:
        *value = properties.maxThreadsDim[attribute - cudaDevAttrMaxBlockDimX];
        return cudaSuccess;
      case cudaDevAttrMaxGridDimX:
      case cudaDevAttrMaxGridDimY:
      case cudaDevAttrMaxGridDimZ:
        *value = properties.maxGridSize[attribute - cudaDevAttrMaxGridDimX];
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = static_cast<int>(properties.sharedMemPerBlock);
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(properties.sharedMemPerBlockOptin);
        return cudaSuccess;
      case cudaDevAttrWarpSize:
        *value = properties.warpSize;
        return cudaSuccess;
      case cudaDevAttrMultiProcessorCount:
        *value = properties.multiProcessorCount;
        return cudaSuccess;
      case cudaDevAttrIntegrated:
        *value = properties.integrated;
        return cudaSuccess;
      case cudaDevAttrConcurrentKernels:
        *value = properties.concurrentKernels;
        return cudaSuccess;
      case cudaDevAttrL2CacheSize:
        *value = properties.l2CacheSize;
        return cudaSuccess;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = properties.maxThreadsPerMultiProcessor;
        return cudaSuccess;
      case cudaDevAttrAsyncEngineCount:
        *value = properties.asyncEngineCount;
        return cudaSuccess;
      case cudaDevAttrUnifiedAddressing:
        *value = properties.unifiedAddressing;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = properties.major;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = properties.minor;
        return cudaSuccess;
      case cudaDevAttrMemoryPoolsSupported:
        *value = properties.memoryPoolsSupported;
        return cudaSuccess;
      case cudaDevAttrTotalConstantMemory:
        *value = static_cast<int>(properties.totalConstMem);
        return cudaSuccess;
      case cudaDevAttrMaxPitch:
        *value = static_cast<int>(properties.memPitch);
        return cudaSuccess;
      case cudaDevAttrMaxRegistersPerBlock:
      case cudaDevAttrMaxRegistersPerMultiprocessor:
        *value = properties.regsPerBlock;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
        return cudaSuccess;
      case cudaDevAttrMaxBlocksPerMultiprocessor:
        *value = properties.maxBlocksPerMultiProcessor;
        return cudaSuccess;
      case cudaDevAttrGpuOverlap:
      case cudaDevAttrCanMapHostMemory:
      case cudaDevAttrManagedMemory:
      case cudaDevAttrConcurrentManagedAccess:
      case cudaDevAttrPageableMemoryAccess:
      case cudaDevAttrHostNativeAtomicSupported:
      case cudaDevAttrCooperativeLaunch:
        *value = 1;
        return cudaSuccess;
      case cudaDevAttrKernelExecTimeout:
      case cudaDevAttrEccEnabled:
      case cudaDevAttrComputeMode:
      case cudaDevAttrStreamPrioritiesSupported:
      case cudaDevAttrClockRate:
      case cudaDevAttrMemoryClockRate:
      case cudaDevAttrGlobalMemoryBusWidth:
        *value = 0;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return cudaRuntimeGetVersion(version);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return plain_call([&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  return plain_call([&] {
    if (can_access == nullptr) return cudaErrorInvalidValue;
    if (!exists(device) || !exists(peer)) return cudaErrorInvalidDevice;
    *can_access = device != peer && config().peer != PeerAccess::impossible;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return device_call([&] {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!exists(peer) || peer == this_thread().device) return cudaErrorInvalidDevice;
    if (config().peer == PeerAccess::impossible) return cudaErrorPeerAccessUnsupported;
    const uint64_t bit = uint64_t{1} << peer;
    return (current_device().peers.fetch_or(bit) & bit) != 0 ? cudaErrorPeerAccessAlreadyEnabled
                                                             : cudaSuccess;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return device_call([&] {
    if (!exists(peer)) return cudaErrorInvalidDevice;
    const uint64_t bit = uint64_t{1} << peer;
    return (current_device().peers.fetch_and(~bit) & bit) != 0 ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int source, int destination) {
  return plain_call([&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!exists(source) || !exists(destination) || source == destination) return cudaErrorInvalidDevice;
    const bool reachable = config().peer != PeerAccess::impossible;
    switch (attribute) {
      case cudaDevP2PAttrPerformanceRank:
        *value = 0;
        return cudaSuccess;
      case cudaDevP2PAttrAccessSupported:
      case cudaDevP2PAttrNativeAtomicSupported:
        *value = reachable;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return device_call([&] {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    *total = config().memory;
    *free = config().memory - memory_in_use(this_thread().device);
    return cudaSuccess;
  });
}

}  // extern "C"
