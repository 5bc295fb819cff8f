// Runs a kernel's blocks one thread after another. A placeholder until the fibers are in.
#include "execution.h"

#include <vector>

namespace hostcuda {
namespace {
thread_local std::vector<unsigned char> shared_memory;
}

void run_blocks(const KernelLaunch& launch, uint64_t first_block, uint64_t last_block) {
  gridDim = launch.grid;
  blockDim = launch.block;
  shared_memory.resize(launch.shared_bytes);
  for (uint64_t block = first_block; block < last_block; ++block) {
    blockIdx.x = static_cast<unsigned>(block % gridDim.x);
    blockIdx.y = static_cast<unsigned>(block / gridDim.x % gridDim.y);
    blockIdx.z = static_cast<unsigned>(block / gridDim.x / gridDim.y);
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z)
      for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) launch.thread();
  }
}

void* dynamic_shared_memory() {
  return shared_memory.data();
}

}  // namespace hostcuda
