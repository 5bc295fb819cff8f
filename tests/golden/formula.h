// Numbers that resnet.py, beside this file, and the tests both make, so that no file has to hold them; and
// sketches, which say how far apart two large tensors are without having both. The formulas are told there.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep::golden {

// lowbias32 (Chris Wellons, Hash Prospector).
inline uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}

// n values in [-1, 1), times `scale`, plus `shift`.
inline std::vector<float> formula_values(uint32_t stream, int64_t n, float scale, float shift = 0) {
  const uint32_t start = mix(stream);
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t word = mix(start + static_cast<uint32_t>(i));
    const float value = static_cast<float>(static_cast<int32_t>(word >> 8) - (1 << 23)) * 0x1p-23F;
    values[i] = value * scale + shift;
  }
  return values;
}

inline constexpr int kSketch = 16;
using Sketch = std::array<double, kSketch>;

inline Sketch sketch(const std::vector<float>& values) {
  constexpr uint32_t kSigns = 2000;
  const uint32_t start = mix(kSigns);
  Sketch sums{};
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t word = mix(start + static_cast<uint32_t>(i));
    for (int k = 0; k < kSketch; ++k)
      sums[static_cast<size_t>(k)] += (word >> k & 1u) != 0 ? -static_cast<double>(values[i]) : values[i];
  }
  return sums;
}

// An estimate of the norm of the difference of the tensors behind two sketches: from 0.4 to 1.6 times as
// large, but for one time in a thousand.
inline double distance(const Sketch& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t k = 0; k < kSketch; ++k) squares += (a[k] - b.at(k)) * (a[k] - b.at(k));
  return std::sqrt(squares / kSketch);
}

}  // namespace lockstep::golden
