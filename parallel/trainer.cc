#include "parallel/trainer.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/check.h"
#include "nn/finite.h"
#include "nn/io/state_dict.h"
#include "nn/layers/cross_entropy.h"
#include "parallel/evaluate.h"

namespace lockstep::parallel {

Trainer::Trainer(const MakeModule& make, const std::vector<Device>& devices, const TrainerSettings& settings)
    : net_(make, devices,
           {.algorithm = settings.algorithm,
            .statistics = settings.statistics,
            .reduce_in = settings.reduce_in,
            .check_allreduce = settings.check_allreduce}),
      optimizers_(net_, settings.make_optimizer),
      label_smoothing_(settings.label_smoothing),
      max_gradient_norm_(settings.max_gradient_norm),
      log_(devices) {}

void Trainer::step(const std::vector<data::LabelledBatch>& shards, float learning_rate) {
  accumulate(shards);
  log_.begin_reduction();
  net_.reduce_gradients();
  log_.end_reduction();
  const float gradient_scale = 1.0f / static_cast<float>(rows_);
  optimizers_.step(learning_rate, gradient_scale, max_gradient_norm_);
  log_.end_step(std::exchange(rows_, 0));
}

void Trainer::accumulate(const std::vector<data::LabelledBatch>& shards) {
  log_.begin_batch();
  if (rows_ == 0) net_.zero_grad();
  std::vector<Tensor> images;
  for (const data::LabelledBatch& shard : shards) images.push_back(shard.x);
  net_.backward(losses_of(net_.forward(images), shards));
  for (const Tensor& x : images) rows_ += x.dim(0);
  log_.end_batch();
}

// The summed loss of each shard, on its device; undefined where that has no rows.
std::vector<Tensor> Trainer::losses_of(const std::vector<Tensor>& logits,
                                       const std::vector<data::LabelledBatch>& shards) {
  std::vector<Tensor> losses(shards.size());
  for (size_t r = 0; r < shards.size(); ++r) {
    if (!logits[r].defined()) continue;
    check_classes(logits[r], shards[r]);
    losses[r] = nn::cross_entropy(logits[r], shards[r].y, nn::Reduction::sum, label_smoothing_);
    log_.add(r, losses[r], logits[r], shards[r].y);
  }
  return losses;
}

StepReport Trainer::report() {
  if (rows_ > 0)
    throw Error(fmt::format(
        "Trainer: asked for a report in the middle of a step, of which {} rows are done: step() ends it",
        rows_));
  return log_.report();
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

}  // namespace lockstep::parallel
