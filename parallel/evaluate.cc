#include "parallel/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>

#include "core/autograd.h"
#include "kernels/check.h"
#include "kernels/finite.h"
#include "nn/finite.h"

namespace lockstep::parallel {

void count_into(const Tensor& correct, const Tensor& logits, const Tensor& labels,
                const kernels::LoggedLoss& loss) {
  const Device device = logits.device();
  for_float_type("count_correct", logits.dtype(), [&]<typename T>(T) {
    kernels::count_correct(logits.data<T>(), labels.data<int32_t>(), logits.dim(0),
                           static_cast<int>(logits.dim(1)), correct.data<int32_t>(), device.label_fault(),
                           device.stream(), loss);
  });
}

void check_classes(const Tensor& logits, const data::LabelledBatch& batch) {
  if (logits.dim(-1) < batch.classes)
    throw Error(fmt::format(
        "the model has {} outputs, but the data have {} classes: give it an output for each class",
        logits.dim(-1), batch.classes));
}

std::optional<int64_t> count_correct(const DataParallel& net, const std::vector<data::DeviceData>& data,
                                     int64_t rows, int64_t batch_size, const WatchRows& watch) {
  const NoGrad no_grad;
  const size_t replicas = net.replicas().size();
  if (data.size() != replicas)
    throw Error(fmt::format("count_correct: data on {} devices for {} replicas", data.size(), replicas));
  std::deque<nn::EvaluationMode> evaluation;
  constexpr int32_t kNoRow = std::numeric_limits<int32_t>::max();
  std::vector<Tensor> correct, without_largest;
  for (size_t r = 0; r < replicas; ++r) {
    evaluation.emplace_back(*net.replicas()[r]);
    correct.push_back(Tensor::zeros({1}, net.devices()[r], DType::int32));
    without_largest.push_back(Tensor::from_host<int32_t>({kNoRow}, {1}, net.devices()[r]));
  }
  size_t r = 0;
  for (int64_t begin = 0; begin < rows; begin += batch_size, r = (r + 1) % replicas) {
    if (watch && !watch(begin)) return std::nullopt;
    const DeviceGuard guard(net.devices()[r]);
    net.devices()[r].synchronize();  // else the deadline of one wait would be that of the whole data set
    const data::LabelledBatch batch = data[r].batch(begin, std::min(batch_size, rows - begin));
    const Tensor logits = net.replicas()[r]->forward(batch.x);
    check_classes(logits, batch);
    count_into(correct[r], logits, batch.y);
    for_float_type("count_correct", logits.dtype(), [&]<typename T>(T) {
      kernels::first_row_without_largest(logits.data<T>(), logits.dim(0), static_cast<int>(logits.dim(1)),
                                         static_cast<int32_t>(begin), without_largest[r].data<int32_t>(),
                                         logits.device().stream());
    });
  }
  int32_t first = kNoRow;
  for (const Tensor& row : without_largest) first = std::min(first, row.to_host<int32_t>()[0]);
  if (first != kNoRow)
    throw nn::NotFinite(fmt::format("the model's outputs for image {} are NaN or infinite", first));
  int64_t total = 0;
  for (const Tensor& count : correct) {
    total += count.to_host<int32_t>()[0];
    count.device().check_labels();
  }
  return total;
}

}  // namespace lockstep::parallel
