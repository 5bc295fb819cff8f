#include "apps/common/resident_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "apps/predict/predictions.h"
#include "kernels/check.h"
#include "parallel/replicas.h"

namespace lockstep::apps {

ResidentData::ResidentData(const data::FashionMnist& images, const std::vector<Device>& devices)
    : devices_(devices), train_rows_(images.train.rows), test_rows_(images.test.rows) {
  const data::Normalisation normalisation{data::kFashionMnistMean, data::kFashionMnistStddev};
  std::vector<int32_t> in_order(static_cast<size_t>(test_rows_));
  std::iota(in_order.begin(), in_order.end(), 0);
  for (const Device& device : devices) {
    const auto put = [&](const data::ImageData& part) {
      return data::DeviceData(part.images, part.labels, part.height, part.width, normalisation, device);
    };
    train_.push_back(put(images.train));
    test_.push_back(put(images.test));
    test_.back().set_order(in_order);
  }
}

void ResidentData::shuffle(uint64_t seed, int64_t epoch) {
  seed_ = seed;
  epoch_ = static_cast<uint64_t>(epoch);
  const std::vector<int32_t> order = data::permutation(train_rows_, seed_, epoch_);
  for (data::DeviceData& data : train_) data.set_order(order);
}

std::vector<data::LabelledBatch> ResidentData::shards(const data::Batch& rows,
                                                      const kernels::Augmentation& augmentation) const {
  const bool augmented = augmentation.padding > 0 || augmentation.flip || augmentation.cutout > 0;
  std::vector<data::LabelledBatch> shards;
  int64_t begin = rows.begin;
  const std::vector<int64_t> sizes =
      parallel::split_sizes(rows.end - rows.begin, static_cast<int>(devices_.size()));
  for (size_t r = 0; r < devices_.size(); ++r) {
    shards.push_back(augmented ? train_[r].augmented_batch(begin, sizes[r], augmentation, seed_, epoch_)
                               : train_[r].batch(begin, sizes[r]));
    begin += sizes[r];
  }
  return shards;
}

void ResidentData::try_evaluation(const parallel::DataParallel& net) const {
  try {
    parallel::count_correct(net, test_, 1, 1);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("the evaluation after an epoch would fail: {}", error.what()));
  }
}

std::optional<double> ResidentData::test_accuracy(const parallel::DataParallel& net,
                                                  const parallel::WatchRows& watch) const {
  const auto right = parallel::count_correct(net, test_, test_rows_, kEvaluationBatch, watch);
  if (!right) return std::nullopt;
  return static_cast<double>(*right) / static_cast<double>(test_rows_);
}

}  // namespace lockstep::apps
