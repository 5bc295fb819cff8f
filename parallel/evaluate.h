// How many rows a network classifies right, on several devices.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/softmax.h"
#include "nn/data/device_data.h"
#include "parallel/data_parallel.h"

namespace lockstep::parallel {

// Adds the rows whose largest logit is the label's to `correct`: one int32, on their device.
// With `loss`, that is added to its sum.
void count_into(const Tensor& correct, const Tensor& logits, const Tensor& labels,
                const kernels::LoggedLoss& loss = {});

// Throws where the model has fewer outputs than the data have classes, before a kernel runs.
void check_classes(const Tensor& logits, const data::LabelledBatch& batch);

// Called before each batch of an evaluation with the rows that are done; false ends it.
using WatchRows = std::function<bool(int64_t rows)>;

// Right answers over the first `rows` rows of the data's order, in batches of `batch_size`, which are dealt
// out to the replicas in turn; data[r] is on device r. So every batch is the same computation for every
// number of replicas, and so is the count, where their buffers are equal (DataParallel::combine_buffers).
// None where `watch` ended it. Throws where the model has fewer outputs than the data have classes, or a
// label is no class, and nn::NotFinite, naming the row, where there is no largest output.
std::optional<int64_t> count_correct(const DataParallel& net, const std::vector<data::DeviceData>& data,
                                     int64_t rows, int64_t batch_size, const WatchRows& watch = nullptr);

}  // namespace lockstep::parallel
