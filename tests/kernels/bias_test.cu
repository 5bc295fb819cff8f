// Bias and its gradient: channels below, at and beyond the 256 slots of a block. The inputs are small
// integers, so that sums are exact in any order and every comparison is for equality.
#include "kernels/bias.h"

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

struct Size {
  int64_t rows;
  int channels;
};

std::vector<Size> sizes() {
  std::vector<Size> all;
  for (const int64_t rows : {0, 1, 31, 32, 33, 1000})
    for (const int channels : {1, 6, 10, 16, 33, 84, 120}) all.push_back({rows, channels});
  for (const int channels : {128, 129, 255, 256, 257, 600}) all.push_back({37, channels});
  all.push_back({30011, 6});
  return all;
}

TEST(BiasAdd, AddsEachChannelsBiasToEveryRow) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const auto [rows, channels] : sizes()) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(channels));
    const std::vector<float> y = random_integers(rows * channels, 8, 1),
                             bias = random_integers(channels, 8, 2);
    std::vector<float> want = y;
    for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i % channels];
    in_both_forms([&] {
      const DeviceBuffer<float> output(y, 1), addend(bias, 3);
      bias_add(output.data(), addend.data(), rows, channels, nullptr);
      expect_same(output.to_host(), want);
    });
    if (HasFailure()) return;
  }
}

TEST(BiasGradient, SumsEveryRowOnce) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const auto [rows, channels] : sizes()) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(channels));
    const std::vector<float> dy = random_integers(rows * channels, 8);
    std::vector<float> want(channels, 0.0f);
    for (size_t i = 0; i < dy.size(); ++i) want[i % channels] += dy[i];
    in_both_forms([&] {
      const DeviceBuffer<float> gradient(dy, 3), result(std::vector<float>(channels, kNaN), 1);
      bias_gradient(gradient.data(), result.data(), rows, channels, nullptr);
      expect_same(result.to_host(), want);
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep::kernels
