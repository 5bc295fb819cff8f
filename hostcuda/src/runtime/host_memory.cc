// Memory that host and devices share: managed, registered, mapped, and the variables of a program that device
// code uses. On a CPU all of it is ordinary memory that everybody can reach, so what is left is to keep the
// books.
#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/capture.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"

namespace hostcuda {
namespace {

bool is_live(const void* pointer) {
  return describe_address(pointer).state == AddressInfo::State::live;
}

// A variable becomes known with its first use. There is one for all devices, where CUDA has one per device:
// two devices that write different values into it would not be what the program means.
class Variables {
 public:
  cudaError_t adopt(void* variable, size_t size) {
    const std::lock_guard hold(mutex_);
    if (writers_.contains(variable)) return cudaSuccess;
    const cudaError_t error = register_memory(variable, size, MemoryKind::variable);
    if (error == cudaSuccess) writers_[variable] = -1;
    return error;
  }

  void note_writer(void* variable, int device) {
    const std::lock_guard hold(mutex_);
    int& writer = writers_[variable];
    if (writer >= 0 && writer != device && !warned_) {
      warned_ = true;
      std::fprintf(stderr,
                   "hostcuda: warning: devices %d and %d both write a __device__ or __constant__ variable: "
                   "here it is one "
                   "for all devices, on a GPU each device has its own\n",
                   writer, device);
    }
    writer = device;
  }

 private:
  std::mutex mutex_;
  std::map<void*, int> writers_;  // the device that wrote last; -1: none
  bool warned_ = false;
};

Variables& variables() {
  static auto* const all = new Variables;
  return *all;
}

cudaError_t find_variable(void* symbol, size_t size, size_t bytes, size_t offset) {
  if (symbol == nullptr) return cudaErrorInvalidSymbol;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  return variables().adopt(symbol, size);
}

cudaError_t copy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream, bool blocking) {
  return blocking ? cudaMemcpy(destination, source, bytes, kind)
                  : cudaMemcpyAsync(destination, source, bytes, kind, stream);
}

}  // namespace
}  // namespace hostcuda

using namespace hostcuda;

extern "C" {

cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  return device_call([&] {
    if (pointer == nullptr || bytes == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
      return cudaErrorInvalidValue;
    const cudaError_t unsafe = forbid_unsafe_call();
    return unsafe != cudaSuccess ? unsafe : allocate_memory(kPinned, bytes, pointer, MemoryKind::managed);
  });
}

// Rows begin at multiples of 512 bytes, as on today's GPUs.
cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  constexpr size_t kPitch = 512;
  if (pitch == nullptr) return remember(cudaErrorInvalidValue);
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return cudaMalloc(pointer, *pitch * height);
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* host_pointer, unsigned flags) {
  return device_call([&] {
    if (device_pointer == nullptr || flags != 0) return cudaErrorInvalidValue;
    const AddressInfo info = describe_address(host_pointer);
    if (info.state != AddressInfo::State::live || info.device != kPinned) return cudaErrorInvalidValue;
    *device_pointer = host_pointer;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* host_pointer) {
  return device_call([&] {
    const AddressInfo info = describe_address(host_pointer);
    if (flags == nullptr || info.state != AddressInfo::State::live || info.device != kPinned)
      return cudaErrorInvalidValue;
    *flags = cudaHostAllocMapped;
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return device_call([&] {
    constexpr unsigned kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterReadOnly;
    if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
    if (is_live(pointer) || is_live(static_cast<char*>(pointer) + bytes - 1))
      return cudaErrorHostMemoryAlreadyRegistered;
    return register_memory(pointer, bytes, MemoryKind::registered);
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return device_call([&] {
    if (pointer == nullptr) return cudaErrorInvalidValue;
    const AddressInfo info = describe_address(pointer);
    if (info.state != AddressInfo::State::live || info.base != pointer || info.kind != MemoryKind::registered)
      return cudaErrorHostMemoryNotRegistered;
    for (int device = 0; device < config().devices; ++device)
      if (const cudaError_t error = wait_for_device(device_at(device)); error != cudaSuccess) return error;
    Forgotten forgotten;
    return forget_memory(pointer, true, &forgotten) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

// Hints: memory that everybody reaches is nowhere else.
cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, cudaMemLocation, unsigned flags,
                                 cudaStream_t stream) {
  return device_call([&] {
    if (find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    const AddressInfo info = describe_address(pointer);
    return flags == 0 && bytes > 0 && info.kind == MemoryKind::managed ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation) {
  return device_call([&] {
    const bool known = advice >= cudaMemAdviseSetReadMostly && advice <= cudaMemAdviseUnsetAccessedBy;
    return known && bytes > 0 && describe_address(pointer).kind == MemoryKind::managed
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* pointer, size_t, unsigned flags) {
  return device_call([&] {
    if (find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    const bool known =
        flags == cudaMemAttachGlobal || flags == cudaMemAttachHost || flags == cudaMemAttachSingle;
    return known && describe_address(pointer).kind == MemoryKind::managed ? cudaSuccess
                                                                          : cudaErrorInvalidValue;
  });
}

cudaError_t hostcudaMemcpyToSymbol(void* symbol, size_t size, const void* source, size_t bytes, size_t offset,
                                   cudaMemcpyKind kind, cudaStream_t stream, bool blocking) {
  const cudaError_t error = device_call([&] { return find_variable(symbol, size, bytes, offset); });
  if (error != cudaSuccess) return error;
  variables().note_writer(symbol, this_thread().device);
  return copy(static_cast<char*>(symbol) + offset, source, bytes, kind, stream, blocking);
}

cudaError_t hostcudaMemcpyFromSymbol(void* destination, void* symbol, size_t size, size_t bytes,
                                     size_t offset, cudaMemcpyKind kind, cudaStream_t stream, bool blocking) {
  const cudaError_t error = device_call([&] { return find_variable(symbol, size, bytes, offset); });
  if (error != cudaSuccess) return error;
  return copy(destination, static_cast<char*>(symbol) + offset, bytes, kind, stream, blocking);
}

cudaError_t hostcudaGetSymbolAddress(void** address, void* symbol, size_t size) {
  return device_call([&] {
    if (address == nullptr) return cudaErrorInvalidValue;
    const cudaError_t error = find_variable(symbol, size, 0, 0);
    if (error == cudaSuccess) *address = symbol;
    return error;
  });
}

}  // extern "C"
