// The allocation calls. cudaFree waits for its device, since work that uses the memory may be under way; the
// stream-ordered calls do not, they free when their stream comes to it.
#include <utility>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/capture.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"

namespace hostcuda {
namespace {

class FreeWork : public Work {
 public:
  explicit FreeWork(void* pointer) : pointer_(pointer) {}
  const char* name() const override { return "cudaFreeAsync"; }
  void prepare() override { found_ = forget_memory(pointer_, false, &forgotten_); }
  cudaError_t run(Device&) override {
    if (!found_) return cudaErrorInvalidValue;  // freed twice
    return_memory(forgotten_);
    return cudaSuccess;
  }

 private:
  void* const pointer_;
  Forgotten forgotten_;
  bool found_ = false;
};

bool is_live(const void* pointer, bool pinned) {
  const AddressInfo info = describe_address(pointer);
  if (info.kind == MemoryKind::registered || info.kind == MemoryKind::variable) return false;
  return info.state == AddressInfo::State::live && info.base == pointer && (info.device == kPinned) == pinned;
}

// Pinned memory may be in use on any device.
cudaError_t wait_for_users(int device) {
  if (device != kPinned) return wait_for_device(device_at(device));
  for (int ordinal = 0; ordinal < config().devices; ++ordinal) {
    const cudaError_t error = wait_for_device(device_at(ordinal));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t allocate(void** pointer, size_t bytes, int device) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  *pointer = nullptr;
  return bytes == 0 ? cudaSuccess : allocate_memory(device, bytes, pointer);
}

cudaError_t free_now(void* pointer, bool pinned) {
  const cudaError_t unsafe = forbid_unsafe_call();
  if (unsafe != cudaSuccess || pointer == nullptr) return unsafe;
  if (!is_live(pointer, pinned)) return cudaErrorInvalidValue;
  const cudaError_t error = wait_for_users(describe_address(pointer).device);
  if (error != cudaSuccess) return error;
  Forgotten forgotten;
  if (!forget_memory(pointer, pinned, &forgotten)) return cudaErrorInvalidValue;
  const race::Hidden seen(false);
  return_memory(forgotten);
  return cudaSuccess;
}

cudaError_t allocate_pinned(void** pointer, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if ((flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  const cudaError_t unsafe = forbid_unsafe_call();
  return unsafe != cudaSuccess ? unsafe : allocate(pointer, bytes, kPinned);
}

}  // namespace
}  // namespace hostcuda

using namespace hostcuda;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return device_call([&] {
    const cudaError_t unsafe = forbid_unsafe_call();
    return unsafe != cudaSuccess ? unsafe : allocate(pointer, bytes, this_thread().device);
  });
}

cudaError_t cudaFree(void* pointer) {
  return device_call([&] {
    // Managed memory is the host's too, but it is freed as a device's.
    return free_now(pointer, describe_address(pointer).kind == MemoryKind::managed);
  });
}

// The memory counts at once. Where there is not enough, what streams are about to free is waited for.
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (is_captured(*found)) return cudaErrorNotSupported;  // graphs do not own memory here
    cudaError_t error = allocate(pointer, bytes, found->device);
    if (error == cudaErrorMemoryAllocation) {
      error = wait_for_device(device_at(found->device));
      if (error == cudaSuccess) error = allocate(pointer, bytes, found->device);
    }
    return error;
  });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (pointer == nullptr) return cudaSuccess;
    if (!is_live(pointer, false)) return cudaErrorInvalidValue;
    if (is_captured(*found)) return cudaErrorNotSupported;
    return submit(*found, std::make_unique<FreeWork>(pointer));
  });
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return device_call([&] { return allocate_pinned(pointer, bytes, flags); });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
  return device_call([&] { return free_now(pointer, true); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return device_call([&] {
    if (attributes == nullptr || pointer == nullptr) return cudaErrorInvalidValue;
    const AddressInfo info = describe_address(pointer);
    void* const address = const_cast<void*>(pointer);
    if (info.state != AddressInfo::State::live)
      *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, address};
    else if (info.kind == MemoryKind::managed)
      *attributes = {cudaMemoryTypeManaged, this_thread().device, address, address};
    else if (info.device == kPinned)
      *attributes = {cudaMemoryTypeHost, this_thread().device, address, address};
    else
      *attributes = {cudaMemoryTypeDevice, info.device, address, nullptr};
    return cudaSuccess;
  });
}

}  // extern "C"
