// The data set on every device, training and test: what a step and an evaluation read.
#pragma once

#include <optional>
#include <vector>

#include "core/device.h"
#include "nn/data/device_data.h"
#include "nn/data/fashion_mnist.h"
#include "nn/data/shuffle.h"
#include "parallel/evaluate.h"
#include "parallel/trainer.h"

namespace lockstep::apps {

class ResidentData {
 public:
  // Copies both parts to every device.
  ResidentData(const data::FashionMnist& images, const std::vector<Device>& devices);

  int64_t train_rows() const { return train_rows_; }
  int64_t test_rows() const { return test_rows_; }

  // Shuffles the training images for an epoch (counted from 0), by (seed, epoch) alone.
  void shuffle(uint64_t seed, int64_t epoch);
  // The rows of a training batch as a shard a device, in the order of the last shuffle, each image changed as
  // `augmentation` says, by (seed, epoch, image) alone.
  std::vector<data::LabelledBatch> shards(const data::Batch& rows,
                                          const kernels::Augmentation& augmentation) const;
  // Evaluates a single image: throws Error where no evaluation can work.
  void try_evaluation(const parallel::DataParallel& net) const;
  // Share of the test images that the network classifies right, on all its devices together; none where
  // `watch` ended it.
  std::optional<double> test_accuracy(const parallel::DataParallel& net,
                                      const parallel::WatchRows& watch) const;

 private:
  std::vector<Device> devices_;
  std::vector<data::DeviceData> train_, test_;
  int64_t train_rows_, test_rows_;
  uint64_t seed_ = 0, epoch_ = 0;
};

}  // namespace lockstep::apps
