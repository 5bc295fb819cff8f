// Pools of stream-ordered memory. A pool here keeps nothing: what is freed is the device's again at once, so
// its attributes only tell what is in use.
#include <cstdint>
#include <mutex>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"

struct CUmemPoolHandle_st {
  int device;
  bool is_default;
  uint64_t release_threshold = 0;
  uint64_t most_used = 0;
};

namespace hostcuda {
namespace {

CUmemPoolHandle_st* default_pool(int device) {
  static CUmemPoolHandle_st* const pools = [] {
    auto* const all = new CUmemPoolHandle_st[64];
    for (int i = 0; i < 64; ++i) all[i] = {i, true};
    return all;
  }();
  return &pools[device];
}

bool exists(int device) {
  return device >= 0 && device < config().devices;
}

}  // namespace
}  // namespace hostcuda

using namespace hostcuda;

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return plain_call([&] {
    if (pool == nullptr) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    *pool = default_pool(device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return cudaDeviceGetDefaultMemPool(pool, device);
}

// All pools of a device are the same memory.
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return plain_call([&] {
    if (!exists(device)) return cudaErrorInvalidDevice;
    return pool == nullptr || pool->device != device ? cudaErrorInvalidValue : cudaSuccess;
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return plain_call([&] {
    if (pool == nullptr || properties == nullptr || properties->allocType != cudaMemAllocationTypePinned ||
        properties->location.type != cudaMemLocationTypeDevice)
      return cudaErrorInvalidValue;
    if (!exists(properties->location.id)) return cudaErrorInvalidDevice;
    *pool = new CUmemPoolHandle_st{properties->location.id, false};
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return plain_call([&] {
    if (pool == nullptr || pool->is_default) return cudaErrorInvalidValue;
    delete pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return plain_call([&] {
    if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    if (attribute == cudaMemPoolAttrReleaseThreshold)
      pool->release_threshold = *static_cast<uint64_t*>(value);
    return attribute >= cudaMemPoolReuseFollowEventDependencies && attribute <= cudaMemPoolAttrUsedMemHigh
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return plain_call([&] {
    if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    const uint64_t used = memory_in_use(pool->device);
    if (used > pool->most_used) pool->most_used = used;
    switch (attribute) {
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies:
        *static_cast<int*>(value) = 1;
        return cudaSuccess;
      case cudaMemPoolAttrReleaseThreshold:
        *static_cast<uint64_t*>(value) = pool->release_threshold;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemCurrent:
      case cudaMemPoolAttrUsedMemCurrent:
        *static_cast<uint64_t*>(value) = used;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
      case cudaMemPoolAttrUsedMemHigh:
        *static_cast<uint64_t*>(value) = pool->most_used;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access, size_t count) {
  return plain_call([&] {
    if (pool == nullptr || access == nullptr) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; ++i) {
      if (!exists(access[i].location.id)) return cudaErrorInvalidDevice;
      if (config().peer == PeerAccess::impossible && access[i].location.id != pool->device)
        return cudaErrorInvalidDevice;
      // As if peer access had been enabled, by the device that gets it.
      if (access[i].flags != cudaMemAccessFlagsProtNone)
        device_at(access[i].location.id).peers.fetch_or(uint64_t{1} << pool->device);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return plain_call([&] { return pool == nullptr ? cudaErrorInvalidValue : cudaSuccess; });
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  if (pool == nullptr) return remember(cudaErrorInvalidValue);
  return cudaMallocAsync(pointer, bytes, stream);
}

}  // extern "C"
