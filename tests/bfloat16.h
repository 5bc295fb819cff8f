// Host values as bfloat16 and back, for tests.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <vector>

namespace lockstep::test {

inline std::vector<__nv_bfloat16> rounded(const std::vector<float>& values) {
  std::vector<__nv_bfloat16> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), __float2bfloat16_rn);
  return result;
}

inline std::vector<float> widened(const std::vector<__nv_bfloat16>& values) {
  std::vector<float> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), __bfloat162float);
  return result;
}

// The values that bfloat16 keeps of `values`, as floats.
inline std::vector<float> through_bfloat16(const std::vector<float>& values) {
  return widened(rounded(values));
}

}  // namespace lockstep::test
