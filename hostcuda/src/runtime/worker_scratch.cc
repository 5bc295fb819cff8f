#include "hostcuda/src/runtime/worker_scratch.h"

#include <cstddef>
#include <vector>

namespace hostcuda {

float* worker_scratch(int64_t floats) {
  thread_local std::vector<float> memory;
  const auto wanted = static_cast<size_t>(floats + kLine);
  if (memory.size() < wanted) memory = std::vector<float>(wanted);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64 / sizeof(float);
}

const float* worker_zeros(int64_t floats) {
  thread_local std::vector<float> memory;
  const auto wanted = static_cast<size_t>(floats);
  if (memory.size() < wanted) memory.resize(wanted);
  return memory.data();
}

}  // namespace hostcuda
