// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011): a keyed
// bijection of 128-bit counters whose images look random. No state: block number i is computed from i alone.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

struct PhiloxBlock {
  uint32_t word[4];
};

__host__ __device__ inline PhiloxBlock philox(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u;  // the golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter.word[0];
    const uint64_t product1 = kMultiplier1 * counter.word[2];
    counter = {
        {static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

// Block `index` of the numbers of (seed, sequence).
__host__ __device__ inline PhiloxBlock philox(uint64_t seed, uint64_t sequence, uint64_t index) {
  return philox({{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                  static_cast<uint32_t>(sequence), static_cast<uint32_t>(sequence >> 32)}},
                static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

}  // namespace lockstep::kernels
