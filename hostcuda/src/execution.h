// Runs a kernel's blocks: called by the workers of a device, each with its own slice of the grid.
#pragma once

#include <cstdint>

#include "hostcuda/launch.h"

namespace hostcuda {

// Runs the blocks [first_block, last_block) of the grid, in x, then y, then z order.
void run_blocks(const KernelLaunch& launch, uint64_t first_block, uint64_t last_block);

}  // namespace hostcuda
