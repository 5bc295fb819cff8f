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

CUstream_st* find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return current_device().legacy;
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
