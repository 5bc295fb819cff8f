#include "parallel/step_log.h"

#include <utility>

#include "kernels/step_mark.h"
#include "parallel/evaluate.h"

namespace lockstep::parallel {

StepLog::StepLog(const std::vector<Device>& devices) : devices_(devices) {
  for (const Device& device : devices) {
    losses_.push_back(Tensor::zeros({kSteps}, device));
    correct_.push_back(Tensor::zeros({1}, device, DType::int32));
  }
  for (Batch& batch : batches_) {
    for (const Device& device : devices) {
      const DeviceGuard guard(device);
      batch.done.emplace_back();
    }
    const DeviceGuard guard(devices[0]);
    batch.reduction_begin = Event(Event::Timing::on);
    batch.reduction_end = Event(Event::Timing::on);
  }
}

void StepLog::begin_batch() {
  if (!std::exchange(in_step_, true)) kernels::begin_step();
  if (static_cast<int64_t>(step_rows_.size()) == kSteps) collect();
  last_ = 1 - last_;
  wait_for(last());
}

void StepLog::add(size_t r, const Tensor& loss, const Tensor& logits, const Tensor& labels) {
  const DeviceGuard guard(devices_[r]);
  const auto step = static_cast<int64_t>(step_rows_.size());
  const Tensor sum = losses_[r].slice(step, step + 1);
  count_into(correct_[r], logits, labels, {loss.data<float>(), sum.data<float>()});
}

void StepLog::end_batch() {
  for (size_t r = 0; r < devices_.size(); ++r) last().done[r].record(devices_[r].stream());
  last().pending = true;
}

void StepLog::begin_reduction() {
  last().reduction_begin.record(devices_[0].stream());
}

void StepLog::end_reduction() {
  last().reduction_end.record(devices_[0].stream());
  last().reduces = true;
}

void StepLog::end_step(int64_t rows) {
  in_step_ = false;
  kernels::end_step(rows);
  step_rows_.push_back(rows);
}

void StepLog::wait_for(Batch& batch) {
  if (!std::exchange(batch.pending, false)) return;
  for (const Event& done : batch.done) done.synchronize();
  if (!std::exchange(batch.reduces, false) || devices_.size() == 1) return;
  batch.reduction_end.synchronize();
  gathered_.allreduce_seconds += batch.reduction_end.milliseconds_since(batch.reduction_begin) / 1e3;
}

void StepLog::collect() {
  wait_for(batches_[1 - last_]);
  wait_for(last());
  for (const Device& device : devices_) device.check_labels();
  const size_t steps = step_rows_.size();
  std::vector<double> sums(steps, 0.0);
  for (const Tensor& losses : losses_) {
    const std::vector<float> values = losses.slice(0, static_cast<int64_t>(steps)).to_host<float>();
    for (size_t i = 0; i < steps; ++i) sums[i] += values[i];
    losses.set_to_zero();
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

StepReport StepLog::report() {
  collect();
  return std::exchange(gathered_, StepReport{});
}

}  // namespace lockstep::parallel
