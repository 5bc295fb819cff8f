// How a device's worker runs its share of a kernel's grid.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include <hostcuda/launch.h>

namespace hostcuda {

// Runs the blocks [first_block, last_block) of the grid, x fastest, on the calling thread, one after the
// other. Returns cudaSuccess, or why the kernel was abandoned: cudaErrorIllegalAddress,
// cudaErrorLaunchFailure (a fault of the kernel, already reported on stderr) or cudaErrorLaunchTimeout (its
// threads wait for each other for ever).
cudaError_t run_blocks(const KernelLaunch& launch, uint64_t first_block, uint64_t last_block);

// Runs all blocks of the grid at the same time, on a thread each, so that they may wait for each other.
cudaError_t run_cooperative(const KernelLaunch& launch, uint64_t blocks);

}  // namespace hostcuda
