// A data set that lies on a device as bytes. A batch is gathered and normalised there, by index, so that a
// step copies nothing from the host.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "kernels/augment.h"

namespace lockstep::data {

// x is [rows, height, width, 1] float32, y is [rows] int32, below `classes` (0: nobody knows).
struct LabelledBatch {
  Tensor x;
  Tensor y;
  int classes = 0;
};

// Pixels are bytes; the network sees (pixel / 255 - mean) / stddev.
struct Normalisation {
  float mean;
  float stddev;
};

class DeviceData {
 public:
  // Copies `images` ([rows, height, width], row-major bytes) and `labels` ([rows] bytes) to `device`.
  DeviceData(const std::vector<uint8_t>& images, const std::vector<uint8_t>& labels, int height, int width,
             Normalisation normalisation, const Device& device);

  // The order in which batch() reads the rows: indices into the data set, copied to the device.
  void set_order(const std::vector<int32_t>& order);
  // Classes that the labels ask for: the largest label and one. 0 without rows.
  int classes() const { return classes_; }
  // Rows [begin, begin + rows) of the order; rows may be 0.
  LabelledBatch batch(int64_t begin, int64_t rows) const;
  // The same with every image changed at random, by (seed, epoch, its place in the data set) alone. Throws
  // for settings that these images are too small for (kernels/augment.h).
  LabelledBatch augmented_batch(int64_t begin, int64_t rows, const kernels::Augmentation& augmentation,
                                uint64_t seed, uint64_t epoch) const;

 private:
  // Memory for a batch of `rows` rows.
  LabelledBatch empty_batch(int64_t rows) const;

  int height_, width_, classes_ = 0;
  Normalisation normalisation_;
  Tensor images_, labels_, order_;
};

}  // namespace lockstep::data
