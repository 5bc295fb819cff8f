// Why there is no device: what a user can do differs.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace lockstep {

// What to say where cudaGetDeviceCount gave `status`, cudaErrorNoDevice or cudaErrorInsufficientDriver:
// versions are CUDA's, 1000 * major + 10 * minor, the driver's 0 where there is none.
std::string why_no_device(cudaError_t status, int driver_version, int runtime_version);

}  // namespace lockstep
