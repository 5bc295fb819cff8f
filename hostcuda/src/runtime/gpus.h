// What the profile, and whoever estimates times, knows of real GPUs. From the vendor's data sheets and the
// tuning guides of each architecture.
#pragma once

#include <array>
#include <string_view>

namespace hostcuda {

struct GpuFigures {
  std::string_view key;   // as a user writes it
  std::string_view name;  // as it is printed
  int multiprocessors;
  int warps_a_multiprocessor;   // resident at most
  int blocks_a_multiprocessor;  // resident at most
  int shared_kilobytes;         // of a multiprocessor, for its blocks
  double bandwidth;             // bytes a second
};

inline constexpr std::array<GpuFigures, 6> kGpus = {{
    {"h200", "H200", 132, 64, 32, 228, 4.8e12},
    {"h100", "H100 SXM", 132, 64, 32, 228, 3.35e12},
    {"a100", "A100", 108, 64, 32, 164, 2.039e12},
    {"a6000", "RTX A6000", 84, 48, 16, 100, 768e9},
    {"rtx3060-laptop", "RTX 3060 Laptop", 30, 48, 16, 100, 336e9},
    {"t4", "T4", 40, 32, 16, 64, 320e9},
}};

}  // namespace hostcuda
