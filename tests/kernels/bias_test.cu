// Bias and its gradient: channels below, at and beyond a block's tile of 64 and the 256 slots of an addition.
// The inputs are small integers, so that sums are exact in any order and every comparison is for equality.
#include "kernels/bias.h"

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/test_scratch.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

struct Size {
  int64_t rows;
  int channels;
  size_t offset;  // of the address, in floats: 16 bytes can be moved at once where that is a multiple of 4
};

std::vector<Size> sizes() {
  std::vector<Size> all;
  for (const int64_t rows : {0, 1, 31, 32, 33, 1000})
    for (const int channels : {1, 6, 10, 16, 33, 84, 120})
      all.push_back({rows, channels, rows % 2 == 0 ? 4u : 1u});
  for (const int channels : {128, 129, 255, 256, 257, 600}) {
    all.push_back({37, channels, 0});
    all.push_back({37, channels, 3});
  }
  for (const size_t offset : {0, 2}) all.push_back({30011, 6, offset});
  all.push_back({20000, 64, 0});  // more rows a slice than the least
  return all;
}

TEST(BiasAdd, AddsEachChannelsBiasToEveryRow) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const auto [rows, channels, offset] : sizes()) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(channels));
    const std::vector<float> y = random_integers(rows * channels, 8, 1),
                             bias = random_integers(channels, 8, 2);
    std::vector<float> want = y;
    for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i % channels];
    in_both_forms([&] {
      const DeviceBuffer<float> output(y, offset), addend(bias, 3);
      bias_add(output.data(), addend.data(), rows, channels, nullptr);
      expect_same(output.to_host(), want);
    });
    if (HasFailure()) return;
  }
}

TEST(BiasGradient, SumsEveryRowOnce) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const auto [rows, channels, offset] : sizes()) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(channels));
    const std::vector<float> dy = random_integers(rows * channels, 8);
    std::vector<float> want(channels, 0.0f);
    for (size_t i = 0; i < dy.size(); ++i) want[i % channels] += dy[i];
    in_both_forms([&] {
      const DeviceBuffer<float> gradient(dy, offset), result(std::vector<float>(channels, kNaN), 1);
      const TestScratch scratch(bias_gradient_workspace_bytes(rows, channels));
      bias_gradient(gradient.data(), result.data(), rows, channels, scratch, nullptr);
      scratch.check();
      expect_same(result.to_host(), want);
    });
    if (HasFailure()) return;
  }
}

// However rows are cut, the two forms add in one order.
TEST(BiasGradient, HasTheSameBitsInBothForms) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const auto [rows, channels, offset] : sizes()) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(channels));
    const std::vector<float> dy = random_floats(rows * channels, -8, 8);
    const auto results = results_of_both_forms([&] {
      const DeviceBuffer<float> gradient(dy, offset), result(std::vector<float>(channels, kNaN), 1);
      const TestScratch scratch(bias_gradient_workspace_bytes(rows, channels));
      bias_gradient(gradient.data(), result.data(), rows, channels, scratch, nullptr);
      return result.to_host();
    });
    expect_same(results[0], results[1]);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep::kernels
