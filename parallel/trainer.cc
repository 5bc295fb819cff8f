#include "parallel/trainer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/autograd.h"
#include "kernels/check.h"
#include "kernels/softmax.h"
#include "nn/clip.h"
#include "nn/functional.h"
#include "parallel/replicas.h"

namespace lockstep::parallel {
namespace {

void count_into(const Tensor& correct, const Tensor& logits, const Tensor& labels) {
  const Device device = logits.device();
  kernels::count_correct(logits.data<float>(), labels.data<int32_t>(), logits.dim(0),
                         static_cast<int>(logits.dim(1)), correct.data<int32_t>(), device.stream());
}

}  // namespace

Trainer::Trainer(std::vector<std::shared_ptr<nn::Module>> replicas, const std::vector<Device>& devices,
                 const TrainerSettings& settings)
    : replicas_(std::move(replicas)),
      devices_(devices),
      allreduce_(devices, settings.algorithm),
      label_smoothing_(settings.label_smoothing),
      max_gradient_norm_(settings.max_gradient_norm) {
  if (replicas_.size() != devices_.size())
    throw Error(fmt::format("Trainer: {} replicas for {} devices", replicas_.size(), devices_.size()));
  for (size_t r = 1; r < replicas_.size(); ++r)
    replicas_[r]->set_parameters(get_params(replicas_[0]->parameters(), devices_[r]));
  for (size_t r = 0; r < replicas_.size(); ++r) {
    arenas_.push_back(nn::gradient_arena(replicas_[r]->parameters()));
    optimizers_.push_back(settings.make_optimizer(replicas_[r]->parameters()));
    losses_.push_back(Tensor::zeros({kLossSlots}, devices_[r]));
    correct_.push_back(Tensor::zeros({1}, devices_[r], DType::int32));
  }
  for (size_t slot = 0; slot < kInFlight; ++slot) {
    InFlight flight;
    for (const Device& device : devices_) {
      const DeviceGuard guard(device);
      flight.done.emplace_back();
    }
    const DeviceGuard guard(devices_[0]);
    flight.reduce_begin = Event(Event::Timing::on);
    flight.reduce_end = Event(Event::Timing::on);
    in_flight_.push_back(std::move(flight));
  }
}

void Trainer::step(const std::vector<data::LabelledBatch>& shards, float learning_rate) {
  if (static_cast<int64_t>(step_rows_.size()) == kLossSlots) collect();
  const size_t slot = next_slot_;
  next_slot_ = (next_slot_ + 1) % kInFlight;
  wait_for_step(slot);
  InFlight& flight = in_flight_[slot];

  const auto step = static_cast<int64_t>(step_rows_.size());
  int64_t rows = 0;
  for (size_t r = 0; r < replicas_.size(); ++r) {
    const DeviceGuard guard(devices_[r]);
    LOCKSTEP_CUDA(cudaMemsetAsync(arenas_[r].data<float>(), 0, arenas_[r].bytes(), devices_[r].stream()));
    rows += shards[r].x.dim(0);
    if (shards[r].x.dim(0) == 0) {
      losses_[r].slice(step, step + 1).copy_from(Tensor::zeros({1}, devices_[r]));
      continue;
    }
    const Tensor logits = replicas_[r]->forward(shards[r].x);
    const Tensor loss = nn::cross_entropy(logits, shards[r].y, nn::Reduction::sum, label_smoothing_);
    losses_[r].slice(step, step + 1).copy_from(loss);
    count_into(correct_[r], logits, shards[r].y);
    backward(loss);
  }
  step_rows_.push_back(rows);

  flight.reduce_begin.record(devices_[0].stream());
  allreduce_(arenas_);
  flight.reduce_end.record(devices_[0].stream());

  for (size_t r = 0; r < replicas_.size(); ++r) {
    const DeviceGuard guard(devices_[r]);
    const float gradient_scale = 1.0f / static_cast<float>(rows);
    if (max_gradient_norm_ != 0) nn::clip_gradient_norm(arenas_[r], max_gradient_norm_, gradient_scale);
    optimizers_[r]->step(learning_rate, gradient_scale);
    flight.done[r].record(devices_[r].stream());
  }
  flight.pending = true;
}

void Trainer::wait_for_step(size_t slot) {
  InFlight& flight = in_flight_[slot];
  if (!flight.pending) return;
  for (const Event& done : flight.done) done.synchronize();
  if (devices_.size() > 1)
    gathered_.allreduce_seconds += flight.reduce_end.milliseconds_since(flight.reduce_begin) / 1e3;
  flight.pending = false;
}

void Trainer::collect() {
  for (size_t slot = 0; slot < kInFlight; ++slot) wait_for_step((next_slot_ + slot) % kInFlight);
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
    const DeviceGuard guard(correct.device());
    LOCKSTEP_CUDA(cudaMemsetAsync(correct.data<int32_t>(), 0, correct.bytes(), correct.device().stream()));
  }
  step_rows_.clear();
}

Trainer::Report Trainer::report() {
  collect();
  return std::exchange(gathered_, Report{});
}

int64_t count_correct(nn::Module& model, const data::DeviceData& data, int64_t rows, int64_t batch_size,
                      const Device& device) {
  const NoGrad no_grad;
  const nn::EvaluationMode evaluation(model);
  const DeviceGuard guard(device);
  const Tensor correct = Tensor::zeros({1}, device, DType::int32);
  for (int64_t begin = 0; begin < rows; begin += batch_size) {
    const data::LabelledBatch batch = data.batch(begin, std::min(batch_size, rows - begin));
    count_into(correct, model.forward(batch.x), batch.y);
  }
  return correct.to_host<int32_t>()[0];
}

}  // namespace lockstep::parallel
