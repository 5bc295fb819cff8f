#include "parallel/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>

#include "core/autograd.h"
#include "kernels/check.h"
#include "kernels/elementwise.h"
#include "kernels/finite.h"
#include "kernels/softmax.h"
#include "nn/clip.h"
#include "nn/finite.h"
#include "nn/io/state_dict.h"
#include "nn/layers.h"

namespace lockstep::parallel {
namespace {

void count_into(const Tensor& correct, const Tensor& logits, const Tensor& labels) {
  const Device device = logits.device();
  for_float_type("count_correct", logits.dtype(), [&]<typename T>(T) {
    kernels::count_correct(logits.data<T>(), labels.data<int32_t>(), logits.dim(0),
                           static_cast<int>(logits.dim(1)), correct.data<int32_t>(), device.label_fault(),
                           device.stream());
  });
}

// Known before a kernel runs: a model cannot name a class that it has no output for.
void check_classes(const Tensor& logits, const data::LabelledBatch& batch) {
  if (logits.dim(-1) < batch.classes)
    throw Error(fmt::format(
        "the model has {} outputs, but the data have {} classes: give it an output for each class",
        logits.dim(-1), batch.classes));
}

}  // namespace

Trainer::Trainer(const MakeModule& make, const std::vector<Device>& devices, const TrainerSettings& settings)
    : net_(make, devices,
           {.algorithm = settings.algorithm,
            .statistics = settings.statistics,
            .reduce_in = settings.reduce_in}),
      optimizers_(net_, settings.make_optimizer),
      label_smoothing_(settings.label_smoothing),
      max_gradient_norm_(settings.max_gradient_norm) {
  for (const Device& device : devices) {
    losses_.push_back(Tensor::zeros({kLossSlots}, device));
    correct_.push_back(Tensor::zeros({1}, device, DType::int32));
  }
  for (size_t slot = 0; slot < kInFlight; ++slot) {
    InFlight flight;
    for (const Device& device : devices) {
      const DeviceGuard guard(device);
      flight.done.emplace_back();
    }
    const DeviceGuard guard(devices[0]);
    flight.reduce_begin = Event(Event::Timing::on);
    flight.reduce_end = Event(Event::Timing::on);
    in_flight_.push_back(std::move(flight));
  }
}

// Forward, losses and backward of a batch; the gradients stay where they are, unsummed.
Trainer::InFlight& Trainer::compute(const std::vector<data::LabelledBatch>& shards) {
  const bool first = rows_ == 0;  // of its step
  if (first && static_cast<int64_t>(step_rows_.size()) == kLossSlots) collect();
  const size_t slot = next_slot_;
  next_slot_ = (next_slot_ + 1) % kInFlight;
  wait_for_batch(slot);
  InFlight& flight = in_flight_[slot];
  flight.reduces = false;
  const std::vector<Device>& devices = net_.devices();

  std::vector<Tensor> images;
  int64_t rows = 0;
  for (const data::LabelledBatch& shard : shards) {
    images.push_back(shard.x);
    rows += shard.x.dim(0);
  }
  if (first) net_.zero_grad();
  const std::vector<Tensor> logits = net_.forward(images);
  std::vector<Tensor> losses(shards.size());
  const auto step = static_cast<int64_t>(step_rows_.size());
  for (size_t r = 0; r < shards.size(); ++r) {
    const DeviceGuard guard(devices[r]);
    const Tensor loss = losses_[r].slice(step, step + 1);
    if (!logits[r].defined()) {
      if (first) loss.copy_from(Tensor::zeros({1}, devices[r]));
      continue;
    }
    check_classes(logits[r], shards[r]);
    losses[r] = nn::cross_entropy(logits[r], shards[r].y, nn::Reduction::sum, label_smoothing_);
    if (first)
      loss.copy_from(losses[r]);
    else
      kernels::add_into(loss.data<float>(), losses[r].data<float>(), 1, devices[r].stream());
    count_into(correct_[r], logits[r], shards[r].y);
  }
  rows_ += rows;
  const DataParallel::NoSync apart(net_);  // also of the last batch: so the allreduce's time can be taken
  net_.backward(losses);
  return flight;
}

void Trainer::record_done(InFlight& flight) {
  for (size_t r = 0; r < net_.devices().size(); ++r) flight.done[r].record(net_.devices()[r].stream());
  flight.pending = true;
}

void Trainer::accumulate(const std::vector<data::LabelledBatch>& shards) {
  record_done(compute(shards));
}

void Trainer::step(const std::vector<data::LabelledBatch>& shards, float learning_rate) {
  const std::vector<Device>& devices = net_.devices();
  InFlight& flight = compute(shards);
  flight.reduces = true;
  flight.reduce_begin.record(devices[0].stream());
  net_.reduce();
  flight.reduce_end.record(devices[0].stream());

  const float gradient_scale = 1.0f / static_cast<float>(rows_);
  if (max_gradient_norm_ != 0)
    for (const Tensor& arena : net_.gradients().arenas())
      nn::clip_gradient_norm(arena, max_gradient_norm_, gradient_scale);
  optimizers_.step(learning_rate, gradient_scale);
  step_rows_.push_back(std::exchange(rows_, 0));
  record_done(flight);
}

void Trainer::wait_for_batch(size_t slot) {
  InFlight& flight = in_flight_[slot];
  if (!flight.pending) return;
  for (const Event& done : flight.done) done.synchronize();
  if (flight.reduces && net_.devices().size() > 1)
    gathered_.allreduce_seconds += flight.reduce_end.milliseconds_since(flight.reduce_begin) / 1e3;
  flight.pending = false;
}

void Trainer::collect() {
  for (size_t slot = 0; slot < kInFlight; ++slot) wait_for_batch((next_slot_ + slot) % kInFlight);
  for (const Device& device : net_.devices()) device.check_labels();
  const size_t steps = step_rows_.size();
  std::vector<double> sums(steps, 0.0);
  for (const Tensor& losses : losses_) {
    const std::vector<float> values = losses.slice(0, static_cast<int64_t>(steps)).to_host<float>();
    for (size_t i = 0; i < steps; ++i) sums[i] += values[i];
  }
  for (size_t i = 0; i < steps; ++i) {
    gathered_.losses.push_back(sums[i] / static_cast<double>(step_rows_[i]));
    gathered_.rows += step_rows_[i];
  }
  for (const Tensor& correct : correct_) {
    gathered_.correct += correct.to_host<int32_t>()[0];
    correct.set_to_zero();
  }
  step_rows_.clear();
}

Trainer::Report Trainer::report() {
  if (rows_ > 0)
    throw Error(fmt::format(
        "Trainer: asked for a report in the middle of a step, of which {} rows are done: step() ends it",
        rows_));
  collect();
  return std::exchange(gathered_, Report{});
}

std::optional<std::string> Trainer::first_not_finite() {
  std::vector<nn::StateEntry> entries;
  for (const nn::Parameter& parameter : net_.module().named_parameters())
    entries.push_back({parameter.name, parameter.value});
  for (const nn::StateEntry& entry : optimizers_.optimizers()[0]->entries(nn::parameter_names(net_.module())))
    entries.push_back(entry);
  for (const auto& replica : net_.replicas())
    for (const nn::Buffer& buffer : replica->named_buffers()) entries.push_back({buffer.name, buffer.value});
  return nn::first_not_finite(entries);
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
