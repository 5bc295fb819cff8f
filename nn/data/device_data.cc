#include "nn/data/device_data.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/check.h"
#include "kernels/gather.h"

namespace lockstep::data {

DeviceData::DeviceData(const std::vector<uint8_t>& images, const std::vector<uint8_t>& labels, int height,
                       int width, Normalisation normalisation, const Device& device)
    : height_(height), width_(width), normalisation_(normalisation) {
  const auto rows = static_cast<int64_t>(labels.size());
  if (rows > 0) classes_ = *std::max_element(labels.begin(), labels.end()) + 1;
  images_ = Tensor::from_host(images, {rows, height, width}, device);
  labels_ = Tensor::from_host(labels, {rows}, device);
}

void DeviceData::set_order(const std::vector<int32_t>& order) {
  const int64_t rows = labels_.dim(0);
  for (const int32_t row : order)
    if (row < 0 || row >= rows)
      throw Error(fmt::format("set_order: row {} of a data set with {} rows", row, rows));
  order_ = Tensor();  // back to the pool first, so that every epoch uses the same block
  order_ = Tensor::from_host(order, {static_cast<int64_t>(order.size())}, images_.device());
}

LabelledBatch DeviceData::empty_batch(int64_t rows) const {
  const Device device = images_.device();
  return {Tensor::empty({rows, height_, width_, 1}, device), Tensor::empty({rows}, device, DType::int32),
          classes_};
}

LabelledBatch DeviceData::batch(int64_t begin, int64_t rows) const {
  const Device device = images_.device();
  const DeviceGuard guard(device);
  const Tensor picked = order_.slice(begin, begin + rows);
  LabelledBatch batch = empty_batch(rows);
  kernels::gather_batch(images_.data<uint8_t>(), labels_.data<uint8_t>(), picked.data<int32_t>(), rows,
                        height_ * width_, normalisation_.mean, normalisation_.stddev, batch.x.data<float>(),
                        batch.y.data<int32_t>(), device.stream());
  return batch;
}

LabelledBatch DeviceData::augmented_batch(int64_t begin, int64_t rows,
                                          const kernels::Augmentation& augmentation, uint64_t seed,
                                          uint64_t epoch) const {
  const Device device = images_.device();
  const DeviceGuard guard(device);
  const Tensor picked = order_.slice(begin, begin + rows);
  LabelledBatch batch = empty_batch(rows);
  kernels::augment_batch(images_.data<uint8_t>(), labels_.data<uint8_t>(), picked.data<int32_t>(), rows,
                         height_, width_, normalisation_.mean, normalisation_.stddev, augmentation, seed,
                         epoch, batch.x.data<float>(), batch.y.data<int32_t>(), device.stream());
  return batch;
}

}  // namespace lockstep::data
