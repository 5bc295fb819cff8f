// The stream calls: create, destroy, query, synchronise, and host functions.
#include <utility>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/capture.h"

namespace hostcuda {
namespace {

class HostFunction : public Work {
 public:
  HostFunction(cudaHostFn_t function, void* argument) : function_(function), argument_(argument) {}
  const char* name() const override { return "a host function"; }
  cudaError_t run(Device&) override {
    function_(argument_);
    return cudaSuccess;
  }

 private:
  const cudaHostFn_t function_;
  void* const argument_;
};

class Callback : public Work {
 public:
  Callback(cudaStream_t stream, cudaStreamCallback_t function, void* argument)
      : stream_(stream), function_(function), argument_(argument) {}
  const char* name() const override { return "a callback"; }
  cudaError_t run(Device& device) override {
    function_(stream_, device.error, argument_);
    return cudaSuccess;
  }

 private:
  const cudaStream_t stream_;
  const cudaStreamCallback_t function_;
  void* const argument_;
};

cudaError_t synchronise(CUstream_st& stream) {
  std::shared_ptr<Marker> marker;
  {
    Hold hold;
    if (stream.state == CUstream_st::State::idle && !race::kDetected && !stream.legacy)
      return device_at(stream.device).error;
    Item record;
    record.kind = Item::Kind::record;
    record.marker = marker = std::make_shared<Marker>();
    marker->recorded = &stream;
    enqueue(hold, stream, std::move(record));
  }
  return wait_for(*marker, device_at(stream.device));
}

}  // namespace
}  // namespace hostcuda

using namespace hostcuda;

extern "C" {

cudaError_t cudaDeviceSynchronize() {
  return device_call([&] {
    const cudaError_t error = forbid_synchronising_device(this_thread().device);
    return error != cudaSuccess ? error : wait_for_device(current_device());
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return device_call([&] {
    if (stream == nullptr || (flags & ~unsigned{cudaStreamNonBlocking}) != 0) return cudaErrorInvalidValue;
    *stream = create_stream(this_thread().device, flags, false);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

// Priorities are accepted and change nothing: every stream is served as its device's workers become free.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return device_call([&] {
    if (find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (priority == nullptr) return cudaErrorInvalidValue;
    *priority = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr || found->legacy) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = forbid_synchronising(*found);
    if (error == cudaSuccess) destroy_stream(found);
    return error;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    cudaError_t error = forbid_synchronising(*found);
    if (error == cudaSuccess) error = forbid_unsafe_call();
    if (error != cudaSuccess) return error;
    release_work();
    std::shared_ptr<Marker> last;
    {
      Hold hold;
      if (!has_work(*found)) return device_at(found->device).error.load();
      last = tail_marker(hold, *found);
    }
    if (!last->reached()) return cudaErrorNotReady;
    race::acquire(last.get());
    return device_at(found->device).error.load();
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = forbid_synchronising(*found);
    return error != cudaSuccess ? error : synchronise(*found);
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = found->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = found->device;
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    return submit(*found, std::make_unique<HostFunction>(function, argument), Item::Kind::host_function);
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* argument,
                                  unsigned flags) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (callback == nullptr || flags != 0) return cudaErrorInvalidValue;
    if (is_captured(*found)) return cudaErrorStreamCaptureUnsupported;
    return submit(*found, std::make_unique<Callback>(stream, callback, argument), Item::Kind::host_function);
  });
}

}  // extern "C"
