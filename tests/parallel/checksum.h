// A line that same_on_every_mapping.cmake compares between processes with other physical devices.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace lockstep::parallel {

// Prints a checksum (FNV-1a) of the bits of all values: of replicas and their tensors.
inline void print_checksum(const std::string& what,
                           const std::vector<std::vector<std::vector<float>>>& replicas) {
  uint64_t checksum = 14695981039346656037u;
  for (const auto& replica : replicas)
    for (const auto& tensor : replica)
      for (const float value : tensor) {
        ASSERT_TRUE(std::isfinite(value));
        checksum = (checksum ^ std::bit_cast<uint32_t>(value)) * 1099511628211u;
      }
  std::printf("weights of %zu replicas, %s: %016llx\n", replicas.size(), what.c_str(),
              static_cast<unsigned long long>(checksum));
}

}  // namespace lockstep::parallel
