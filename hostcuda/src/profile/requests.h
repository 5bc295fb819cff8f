// What a warp's access to memory costs: the accesses of its lanes at one instruction are one request, which
// global memory serves in sectors of 32 bytes and shared memory from 32 banks of 4 bytes.
#pragma once

#include <cstdint>
#include <span>

namespace hostcuda::profile {

enum class Space : uint8_t { global, shared };
enum class Kind : uint8_t { load, store, atomic };

struct Request {
  int sectors = 0;  // distinct ones, of 32 bytes
  // Shared memory: a request of 4 bytes a lane or fewer is served as a whole, of 8 bytes by half warps, of 16
  // by quarters. Each such part takes as many passes as the fullest bank has distinct words.
  int passes = 0;
  int parts = 0;
};

// The request of lanes that access `bytes` each at `addresses`.
Request global_request(std::span<const uint64_t> addresses, unsigned bytes);
// The same for shared memory, where it matters which lane each address is of.
Request shared_request(std::span<const uint64_t> addresses, std::span<const uint8_t> lanes, unsigned bytes);

}  // namespace hostcuda::profile
