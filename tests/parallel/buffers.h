// Buffers for the tests of allreduce: a slice of a larger tensor on each device, with guard elements around
// it.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.h"

namespace lockstep::collective {

using Values = std::vector<std::vector<float>>;  // by rank

inline constexpr float kGuard = -12345.0f;
inline constexpr int64_t kGuardAfter = 37;

// One buffer a device, with `offset` guard elements before it (1 and 3 leave it misaligned) and some after.
class Buffers {
 public:
  Buffers(const std::vector<Device>& devices, const Values& values, int64_t offset = 4) : offset_(offset) {
    for (size_t rank = 0; rank < devices.size(); ++rank) {
      std::vector<float> all(static_cast<size_t>(offset), kGuard);
      all.insert(all.end(), values[rank].begin(), values[rank].end());
      all.insert(all.end(), kGuardAfter, kGuard);
      const auto size = static_cast<int64_t>(all.size());
      whole_.push_back(Tensor::from_host(all, {size}, devices[rank]));
      data_.push_back(whole_.back().slice(offset, size - kGuardAfter));
    }
  }

  const std::vector<Tensor>& data() const { return data_; }

  // Every buffer holds exactly `want`, and no guard was touched. Reports the first difference only.
  testing::AssertionResult all_hold(const std::vector<float>& want) const {
    for (size_t rank = 0; rank < whole_.size(); ++rank) {
      const std::vector<float> all = whole_[rank].to_host<float>();
      for (size_t i = 0; i < all.size(); ++i) {
        const int64_t at = static_cast<int64_t>(i) - offset_;
        const bool inside = at >= 0 && at < static_cast<int64_t>(want.size());
        const float expected = inside ? want[static_cast<size_t>(at)] : kGuard;
        if (std::bit_cast<uint32_t>(all[i]) != std::bit_cast<uint32_t>(expected))
          return testing::AssertionFailure() << (inside ? "element " : "guard element ") << at << " of rank "
                                             << rank << " is " << all[i] << ", wanted " << expected;
      }
    }
    return testing::AssertionSuccess();
  }

 private:
  int64_t offset_;
  std::vector<Tensor> whole_, data_;
};

// Integers from -8 to 8, different for every rank and element: their sums are exact in any order.
inline Values small_integers(int ranks, int64_t count, int round = 0) {
  Values values(static_cast<size_t>(ranks), std::vector<float>(static_cast<size_t>(count)));
  for (int rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < count; ++i)
      values[rank][i] = static_cast<float>((i * 7 + rank * 5 + round * 3 + i / 17) % 17 - 8);
  return values;
}

inline std::vector<float> sum_of(const Values& values) {
  std::vector<float> sum = values[0];
  for (size_t rank = 1; rank < values.size(); ++rank)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[rank][i];
  return sum;
}

}  // namespace lockstep::collective
