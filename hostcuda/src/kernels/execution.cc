// Runs a worker's share of a grid, block after block.
#include "hostcuda/src/kernels/execution.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "hostcuda/src/kernels/block.h"
#include "hostcuda/src/kernels/fault.h"
#include "hostcuda/src/kernels/observer.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"
#include "hostcuda/src/runtime/report.h"
#include "hostcuda/src/runtime/symbols.h"

HOSTCUDA_TLS uint3 threadIdx{0, 0, 0};
HOSTCUDA_TLS uint3 blockIdx{0, 0, 0};
HOSTCUDA_TLS dim3 blockDim;
HOSTCUDA_TLS dim3 gridDim;

namespace hostcuda {

namespace {

constexpr size_t kSharedBytes = 164 << 10;  // at least what a launch may ask for

// The shared memory of a worker's current block. The dynamic part ends at a page that cannot be touched.
class SharedMemory {
 public:
  SharedMemory() {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* memory =
        mmap(nullptr, kSharedBytes + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(memory);
    mprotect(begin_ + kSharedBytes, page_, PROT_NONE);
    set_shared_memory_guard(begin_ + kSharedBytes);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(begin_, kSharedBytes + page_); }

  void resize(size_t bytes) { bytes_ = (bytes + 15) / 16 * 16; }
  SharedBounds bounds() const { return {data(), begin_, begin_ + kSharedBytes + page_}; }
  std::byte* data() const { return begin_ + kSharedBytes - bytes_; }

  // Fills it, and the static variables, with NaN, so that a value shows that no thread of the block has
  // written.
  void poison() {
    std::memset(data(), 0xff, bytes_);
    for (const Range& variable : static_variables_) std::memset(variable.begin, 0xff, variable.bytes);
  }

 private:
  std::byte* begin_;
  size_t page_;
  size_t bytes_ = 0;
  std::vector<Range> static_variables_ = static_shared_variables();
};

SharedMemory& shared_memory() {
  thread_local SharedMemory memory;
  return memory;
}

void set_block_index(uint64_t block) {
  blockIdx.x = static_cast<unsigned>(block % gridDim.x);
  blockIdx.y = static_cast<unsigned>(block / gridDim.x % gridDim.y);
  blockIdx.z = static_cast<unsigned>(block / gridDim.x / gridDim.y);
}

void next_block_index() {
  if (++blockIdx.x < gridDim.x) return;
  blockIdx.x = 0;
  if (++blockIdx.y < gridDim.y) return;
  blockIdx.y = 0;
  ++blockIdx.z;
}

// Blocks of one thread: a loop, with nobody to wait for.
cudaError_t run_single_threads(const KernelLaunch& launch, uint64_t first_block, uint64_t last_block) {
  threadIdx = {0, 0, 0};
  set_block_index(first_block);
  try {
    for (uint64_t block = first_block; block < last_block; ++block, next_block_index()) launch.thread();
  } catch (const std::exception& exception) {
    report_fault("exception", launch, blockIdx, &threadIdx, exception.what());
    return cudaErrorLaunchFailure;
  } catch (...) {
    report_fault("exception", launch, blockIdx, &threadIdx, "of an unknown type");
    return cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}

// In checked mode, the order of blocks follows the seed as that of threads does: 0 forward, 1 backward, any
// other a stride through the grid that meets every block once.
uint64_t block_in_order(uint64_t i, uint64_t first, uint64_t count) {
  const uint64_t seed = schedule_seed();
  if (seed == 0) return first + i;
  if (seed == 1) return first + count - 1 - i;
  uint64_t stride = seed % count + 1;
  while (std::gcd(stride, count) != 1) ++stride;
  return first + (seed + i * (stride % count)) % count;
}

// Looks for writes before an allocation that no guard page has caught. Every look reads what is before all
// allocations, so large grids get one every few blocks.
constexpr uint64_t kMemoryChecks = 64;

bool overrun_found(const KernelLaunch& launch, uint64_t blocks_since) {
  const std::string overrun = find_overruns();
  if (overrun.empty()) return false;
  const std::string which =
      blocks_since == 1 ? ""
                        : " (by this block or one of the " + std::to_string(blocks_since - 1) + " before it)";
  report_fault("out-of-bounds write", launch, blockIdx, nullptr, overrun + which);
  return true;
}

KernelObserver* (*observer_of_this_thread)() = nullptr;

// A launch before the eyes of an observer, where there is one.
class Observed {
 public:
  Observed(KernelObserver* observer, const KernelLaunch& launch, uint64_t first_block) : observer_(observer) {
    if (observer_ != nullptr) observer_->begin_launch(launch, first_block, shared_memory().bounds());
  }
  ~Observed() {
    if (observer_ != nullptr) observer_->end_launch();
  }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

  cudaError_t run(Block& block, uint64_t index) const {
    if (observer_ == nullptr) return block.run();
    if (!observer_->begin_block(block, index)) return config().profile_only ? cudaSuccess : block.run();
    const cudaError_t error = block.run(observer_);
    observer_->end_block();
    return error;
  }

 private:
  KernelObserver* const observer_;
};

}  // namespace

KernelObserver* kernel_observer() {
  return observer_of_this_thread == nullptr ? nullptr : observer_of_this_thread();
}

void register_observer(KernelObserver* (*of_this_thread)()) {
  observer_of_this_thread = of_this_thread;
}

cudaError_t run_blocks(const KernelLaunch& launch, uint64_t first_block, uint64_t last_block) {
  if (first_block >= last_block) return cudaSuccess;
  gridDim = launch.grid;
  blockDim = launch.block;
  const bool checked = checked_mode();
  KernelObserver* const observer = kernel_observer();
  if (launch.shared_bytes > 0 || checked || observer != nullptr) shared_memory().resize(launch.shared_bytes);
  if (!checked && observer == nullptr && !launch.cooperative && blockDim.x * blockDim.y * blockDim.z == 1)
    return run_single_threads(launch, first_block, last_block);

  thread_local Block block;
  block.prepare(launch);
  const Observed observed(observer, launch, first_block);
  const uint64_t count = last_block - first_block;
  const uint64_t checks = (count + kMemoryChecks - 1) / kMemoryChecks;  // blocks from one to the next
  if (checked) prepare_thread_for_faults();
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t index = checked ? block_in_order(i, first_block, count) : first_block + i;
    set_block_index(index);
    if (checked) shared_memory().poison();
    if (const cudaError_t error = observed.run(block, index); error != cudaSuccess) return error;
    if (checked && (i % checks == checks - 1 || i == count - 1) && overrun_found(launch, checks))
      return cudaErrorIllegalAddress;
  }
  return cudaSuccess;
}

void* dynamic_shared_memory() {
  return shared_memory().data();
}

}  // namespace hostcuda

void __threadfence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (hostcuda::Block* const block = hostcuda::running_block(); block != nullptr) block->fence();
}

long long clock64() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

void __nanosleep(unsigned nanoseconds) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
}
