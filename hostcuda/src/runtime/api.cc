#include "hostcuda/src/runtime/api.h"

#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/report.h"

namespace hostcuda {

ThreadState& this_thread() {
  static thread_local ThreadState state;
  return state;
}

cudaError_t find_obstacle() {
  static const bool usable = [] {
    if (!config().problem.empty()) explain(cudaErrorInitializationError, config().problem);
    return config().problem.empty();
  }();
  if (!usable) return cudaErrorInitializationError;
  return operation_of_this_thread() != nullptr ? cudaErrorNotPermitted : cudaSuccess;
}

cudaError_t find_failure() {
  const cudaError_t obstacle = find_obstacle();
  return obstacle != cudaSuccess ? obstacle : current_device().error.load(std::memory_order_relaxed);
}

namespace {

// cudaStreamPerThread: a stream for each host thread and device, made with its first use.
CUstream_st* stream_of_this_thread() {
  struct Streams {
    ~Streams() {
      for (CUstream_st* stream : by_device)
        if (stream != nullptr) destroy_stream(stream);
    }
    CUstream_st* by_device[64] = {};
  };
  static thread_local Streams streams;
  const int device = this_thread().device;
  CUstream_st*& stream = streams.by_device[device];
  if (stream == nullptr) stream = create_stream(device, cudaStreamDefault, false);
  return stream;
}

}  // namespace

CUstream_st* find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return current_device().legacy;
  if (handle == cudaStreamPerThread) return stream_of_this_thread();
  return handle->alive ? handle : nullptr;
}

}  // namespace hostcuda

using namespace hostcuda;

extern "C" {

// A failed device's error stays; other errors are given once.
cudaError_t cudaGetLastError() {
  const cudaError_t failure = find_failure();
  const cudaError_t last = this_thread().last_error;
  this_thread().last_error = cudaSuccess;
  return failure != cudaSuccess ? failure : last;
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t failure = find_failure();
  return failure != cudaSuccess ? failure : this_thread().last_error;
}

}  // extern "C"
