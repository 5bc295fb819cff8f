// What every CUDA call goes through: the thread's current device and last error, and the errors that come
// before a call's own (a bad environment, a call from inside an operation, a device that has failed).
#pragma once

#include <cuda_runtime_api.h>

#include "hostcuda/src/runtime/scheduler.h"

namespace hostcuda {

struct ThreadState {
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
};

ThreadState& this_thread();
inline Device& current_device() {
  return device_at(this_thread().device);
}

// What speaks against any call at all: the environment, or being inside an operation. Else cudaSuccess.
cudaError_t find_obstacle();
// The same, and the current device's sticky error.
cudaError_t find_failure();

inline cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) this_thread().last_error = error;
  return error;
}

// Runs a call's own code where nothing speaks against it; the result becomes the thread's last error.
template <typename Body>
cudaError_t device_call(Body body) {
  const race::Hidden hidden;
  const cudaError_t failure = find_failure();
  return remember(failure != cudaSuccess ? failure : body());
}

// For calls that work on a failed device too.
template <typename Body>
cudaError_t plain_call(Body body) {
  const race::Hidden hidden;
  const cudaError_t obstacle = find_obstacle();
  return remember(obstacle != cudaSuccess ? obstacle : body());
}

// The stream that a handle names (null: the current device's default stream); null where it names none.
CUstream_st* find_stream(cudaStream_t handle);

}  // namespace hostcuda
