// Runs a worker's share of a grid, block after block.
#include "execution.h"

#include <chrono>
#include <thread>
#include <vector>

HOSTCUDA_TLS uint3 threadIdx{0, 0, 0};
HOSTCUDA_TLS uint3 blockIdx{0, 0, 0};
HOSTCUDA_TLS dim3 blockDim;
HOSTCUDA_TLS dim3 gridDim;

namespace hostcuda {
namespace detail {
HOSTCUDA_TLS bool threads_are_fibers = false;
int barrier(BarrierResult, bool predicate, const Site&) {
  return predicate;
}
uint64_t warp_rendezvous(WarpOperation, unsigned, uint64_t value, int, const Site&) {
  return value;
}
int lane() {
  return static_cast<int>(threadIdx.x % 32);
}
unsigned active_mask() {
  return 1u << lane();
}
}  // namespace detail

namespace {

thread_local std::vector<std::byte> shared_memory;

void set_block_index(uint64_t block) {
  blockIdx.x = static_cast<unsigned>(block % gridDim.x);
  blockIdx.y = static_cast<unsigned>(block / gridDim.x % gridDim.y);
  blockIdx.z = static_cast<unsigned>(block / gridDim.x / gridDim.y);
}

}  // namespace

cudaError_t run_blocks(const KernelLaunch& launch, uint64_t first_block, uint64_t last_block) {
  gridDim = launch.grid;
  blockDim = launch.block;
  threadIdx = {0, 0, 0};
  if (shared_memory.size() < launch.shared_bytes) shared_memory.resize(launch.shared_bytes);
  for (uint64_t block = first_block; block < last_block; ++block) {
    set_block_index(block);
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z)
      for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) launch.thread();
  }
  return cudaSuccess;
}

void* dynamic_shared_memory() {
  return shared_memory.data();
}

}  // namespace hostcuda

void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

long long clock64() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

void __nanosleep(unsigned nanoseconds) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
}
