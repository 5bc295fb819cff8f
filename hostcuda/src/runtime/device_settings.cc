// Settings of a device that a CPU has no use for: accepted where CUDA accepts them, and remembered where they
// can be asked for.
#include <array>
#include <atomic>
#include <cstdio>
#include <limits>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/config.h"

namespace {

std::atomic<unsigned> device_flags{cudaDeviceScheduleAuto};
std::array<std::atomic<size_t>, 7> limits{1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};  // CUDA's defaults

}  // namespace

using namespace hostcuda;

extern "C" {

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return plain_call([&] {
    if ((flags & ~0x1fu) != 0) return cudaErrorInvalidValue;
    device_flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return plain_call([&] {
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = device_flags;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return plain_call([&] {
    if (limit < 0 || static_cast<size_t>(limit) >= limits.size()) return cudaErrorInvalidValue;
    limits[limit] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return plain_call([&] {
    if (value == nullptr || limit < 0 || static_cast<size_t>(limit) >= limits.size())
      return cudaErrorInvalidValue;
    *value = limits[limit];
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
  return plain_call([] { return cudaSuccess; });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return plain_call([&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return plain_call([&] {
    if (text == nullptr || length < 13) return cudaErrorInvalidValue;
    if (device < 0 || device >= config().devices) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device));
    return cudaSuccess;
  });
}

// All devices are alike.
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
  return plain_call([&] {
    if (device == nullptr || wanted == nullptr) return cudaErrorInvalidValue;
    *device = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID, const cudaStreamAttrValue* value) {
  return device_call([&] {
    if (find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    return value == nullptr ? cudaErrorInvalidValue : cudaSuccess;
  });
}

cudaError_t cudaCtxResetPersistingL2Cache() {
  return device_call([] { return cudaSuccess; });
}

// Programs call it at their end. What they have not freed goes with the process.
cudaError_t cudaDeviceReset() {
  return cudaDeviceSynchronize();
}

}  // extern "C"
