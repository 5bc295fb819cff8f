// A small data set in Fashion-MNIST's format, in a folder that goes away with it: every class is bright in
// rows of its own, with noise on top.
#pragma once

#include <random>
#include <string>

#include "tests/nn/idx_files.h"

namespace lockstep::apps {

inline data::Bytes idx_labels(const data::Bytes& labels) {
  return data::operator+(data::idx_header(0x801, {static_cast<uint32_t>(labels.size())}), labels);
}

inline data::Bytes idx_images(const data::Bytes& pixels) {
  return data::operator+(data::idx_header(0x803, {static_cast<uint32_t>(pixels.size() / 784), 28, 28}),
                         pixels);
}

class SmallFashionMnist {
 public:
  SmallFashionMnist(uint32_t train_rows, uint32_t test_rows) {
    put("train", train_rows);
    put("t10k", test_rows);
  }

  const data::TemporaryFolder& folder() const { return folder_; }
  std::string path() const { return folder_.path().string(); }

 private:
  // Writes the images and labels of one part, "train" or "t10k".
  void put(const std::string& part, uint32_t rows) const {
    std::mt19937 generator(rows);
    data::Bytes pixels, labels;
    for (uint32_t row = 0; row < rows; ++row) {
      const auto label = static_cast<uint8_t>(row % 10);
      labels.push_back(label);
      for (uint32_t pixel = 0; pixel < 784; ++pixel) {
        const bool bright = pixel / 28 / 2 == label + 2U;
        pixels.push_back(static_cast<uint8_t>((bright ? 160 : 20) + generator() % 60));
      }
    }
    folder_.write(part + "-images-idx3-ubyte", idx_images(pixels));
    folder_.write(part + "-labels-idx1-ubyte", idx_labels(labels));
  }

  data::TemporaryFolder folder_;
};

}  // namespace lockstep::apps
