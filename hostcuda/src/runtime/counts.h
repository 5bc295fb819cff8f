// What host threads have called so far, for hostcuda/statistics.h.
#pragma once

#include <atomic>
#include <cstdint>

namespace hostcuda {

struct Counts {
  std::atomic<uint64_t> kernels{0}, library_calls{0}, copies{0}, events{0};
};

inline Counts counts;

}  // namespace hostcuda
