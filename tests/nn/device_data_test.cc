// Augmented batches: what an image becomes depends on its place in the data set, not on batch or device.
#include "nn/data/device_data.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep::data {
namespace {

constexpr int kSide = 12;

DeviceData numbered_images(const Device& device) {
  std::vector<uint8_t> images(30 * kSide * kSide), labels(30);
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<uint8_t>(i * 7 % 251);
  std::iota(labels.begin(), labels.end(), uint8_t{0});
  DeviceData data(images, labels, kSide, kSide, {0.5F, 0.25F}, device);
  std::vector<int32_t> order(30);
  for (int32_t i = 0; i < 30; ++i) order[static_cast<size_t>(i)] = 29 - i;
  data.set_order(order);
  return data;
}

const kernels::Augmentation kAll{.padding = 3, .flip = true, .cutout = 4};

TEST(AugmentedBatch, IsTheSameInShardsOnSeveralDevices) {
  const std::vector<Device> devices = make_devices(2);
  const DeviceData one = numbered_images(devices[0]), other = numbered_images(devices[1]);
  const LabelledBatch whole = one.augmented_batch(4, 20, kAll, 5, 6);
  EXPECT_EQ(whole.x.shape(), (Shape{20, kSide, kSide, 1}));
  const LabelledBatch front = one.augmented_batch(4, 13, kAll, 5, 6),
                      back = other.augmented_batch(17, 7, kAll, 5, 6);
  EXPECT_EQ(front.x.to_host<float>(), whole.x.slice(0, 13).to_host<float>());
  EXPECT_EQ(back.x.to_host<float>(), whole.x.slice(13, 20).to_host<float>());
  EXPECT_EQ(back.y.to_host<int32_t>(), (std::vector<int32_t>{12, 11, 10, 9, 8, 7, 6}));
  EXPECT_EQ(other.augmented_batch(30, 0, kAll, 5, 6).x.size(), 0);
}

TEST(AugmentedBatch, ChangesWithSeedAndEpochAndNotAtAllWithoutSettings) {
  const DeviceData data = numbered_images(make_devices(1)[0]);
  const auto values = [&](const kernels::Augmentation& how, uint64_t seed, uint64_t epoch) {
    return data.augmented_batch(0, 30, how, seed, epoch).x.to_host<float>();
  };
  EXPECT_EQ(values(kAll, 1, 1), values(kAll, 1, 1));
  EXPECT_NE(values(kAll, 1, 1), values(kAll, 2, 1));
  EXPECT_NE(values(kAll, 1, 1), values(kAll, 1, 2));
  EXPECT_EQ(values({}, 1, 1), data.batch(0, 30).x.to_host<float>());
}

}  // namespace
}  // namespace lockstep::data
