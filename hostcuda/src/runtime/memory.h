// Who owns an address: every allocation of device and pinned memory, live or freed. In checked mode each one
// ends at a guard page, is filled with NaN, stays inaccessible once freed, and can be reached only while an
// operation runs on a device that may access it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace hostcuda {

inline constexpr int kPinned = -1;  // the "device" of pinned host memory

enum class MemoryKind : unsigned char {
  allocated,   // cudaMalloc, cudaMallocHost
  managed,     // cudaMallocManaged
  registered,  // the program's own, cudaHostRegister
  variable,    // a __device__ or __constant__ variable
};

struct AddressInfo {
  enum class State {
    unknown,  // not memory of hostcuda
    live,
    freed,
    guard,  // in a guard page of the allocation at `base`, or between that and its start
  };
  State state = State::unknown;
  int device = kPinned;
  MemoryKind kind = MemoryKind::allocated;
  const void* base = nullptr;
  size_t size = 0;
};

// For the fault handler too: takes no lock that the faulting thread may hold, and allocates nothing.
AddressInfo describe_address(const void* address) noexcept;

// The allocation that `address`, which lies in none, is at most a page away from; else State::unknown.
AddressInfo nearest_allocation(const void* address);

// At least 256-byte aligned; in checked mode as its size is, up to a page. cudaErrorMemoryAllocation where
// `device` has not that much left. `bytes` > 0.
cudaError_t allocate_memory(int device, size_t bytes, void** pointer,
                            MemoryKind kind = MemoryKind::allocated);

// Memory that the program already has becomes known, as reachable from the host and all devices.
// forget_memory ends that.
cudaError_t register_memory(void* pointer, size_t bytes, MemoryKind kind);

// Frees in two steps, so that the memory itself is touched in its stream's order: forget_memory takes the
// allocation that starts at `pointer` out of the books (false: there is none of that kind), return_memory
// gives the memory back.
struct Forgotten {
  void* block = nullptr;
  size_t mapped = 0;
};
bool forget_memory(void* pointer, bool pinned, Forgotten* forgotten);
void return_memory(const Forgotten& forgotten);

size_t memory_in_use(int device);

// Checked mode only. The devices in `mask` (bit d: device d) become accessible, all others inaccessible.
void set_accessible(uint64_t mask);
// What an operation has overwritten before allocations since they were made, in one line; empty: nothing.
// The damage is repaired, so it is reported once.
std::string find_overruns();

}  // namespace hostcuda
