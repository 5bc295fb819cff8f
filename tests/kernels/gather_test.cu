// A batch by index against the plain formula, with rows picked twice, out of order, and all byte values.
#include "kernels/gather.h"

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

TEST(GatherBatch, PicksRowsByIndexAndNormalises) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  constexpr float kMean = 0.2860f, kDeviation = 0.3530f;
  struct Size {
    int64_t rows;
    int pixels;
  };
  for (const auto [rows, pixels] :
       {Size{0, 784}, Size{1, 784}, Size{31, 1}, Size{32, 31}, Size{33, 33}, Size{1000, 7}, Size{70, 784}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(pixels));
    constexpr int64_t kStored = 50;
    std::mt19937 generator(kSeed);
    std::vector<uint8_t> images(kStored * pixels), labels(kStored);
    for (uint8_t& v : images) v = static_cast<uint8_t>(generator());
    for (uint8_t& v : labels) v = static_cast<uint8_t>(generator() % 10);
    std::vector<int32_t> order(rows);
    for (int32_t& r : order) r = static_cast<int32_t>(generator() % kStored);
    const auto results = results_of_both_forms([&] {
      const DeviceBuffer<uint8_t> device_images(images, 1), device_labels(labels, 3);
      const DeviceBuffer<int32_t> device_order(order, 1), y(std::vector<int32_t>(rows, -1), 3);
      const DeviceBuffer<float> x(std::vector<float>(rows * pixels, kNaN), 1);
      gather_batch(device_images.data(), device_labels.data(), device_order.data(), rows, pixels, kMean,
                   kDeviation, x.data(), y.data(), nullptr);
      const std::vector<int32_t> got_labels = y.to_host();
      for (int64_t i = 0; i < rows; ++i) EXPECT_EQ(got_labels[i], labels[order[i]]) << "row " << i;
      return x.to_host();
    });
    for (int64_t i = 0; i < rows; ++i)
      for (int p = 0; p < pixels; ++p) {
        const double v = images[order[i] * pixels + p] / 255.0;
        // Factor, offset, product and sum round once each; no term exceeds 1 / deviation.
        expect_near(results[0][i * pixels + p], (v - double{kMean}) / double{kDeviation},
                    4 * kUnit / kDeviation, "row " + std::to_string(i));
      }
    expect_same(results[0], results[1]);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep::kernels
