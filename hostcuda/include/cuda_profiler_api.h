// Where a profiler is told to start and stop: there is none to tell.
#pragma once

#include <cuda_runtime_api.h>

inline cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
inline cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}
