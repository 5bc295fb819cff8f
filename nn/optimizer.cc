#include "nn/optimizer.h"

#include <fmt/format.h>

#include <ranges>

#include "kernels/check.h"
#include "nn/io/state_dict.h"

namespace lockstep::nn {

Optimizer::Optimizer(std::vector<Tensor> parameters, DecayOn decay_on)
    : parameters_(std::move(parameters)), decay_on_(decay_on) {
  check_distinct("the optimizer", parameters_);
}

void Optimizer::step(float learning_rate, float gradient_scale) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& weights = parameters_[i];
    const Tensor gradient = weights.grad();
    if (!gradient.defined()) continue;
    const DeviceGuard guard(weights.device());
    const bool decays = decay_on_ == DecayOn::all_parameters || weights.shape().size() > 1;
    update(i, weights, gradient, {learning_rate, gradient_scale, decays});
    weights.mark_overwritten();
  }
}

std::vector<Tensor>& Optimizer::add_tensors(const std::string& what) {
  std::vector<Tensor> zeros;
  for (const Tensor& parameter : parameters_)
    zeros.push_back(Tensor::zeros(parameter.shape(), parameter.device()));
  return tensors_.emplace_back(what, std::move(zeros)).second;
}

std::vector<int64_t>& Optimizer::add_counts(const std::string& what) {
  return counts_.emplace_back(what, std::vector<int64_t>(parameters_.size(), 0)).second;
}

std::vector<StateEntry> Optimizer::entries(const std::vector<std::string>& names) {
  if (names.size() != parameters_.size())
    throw Error(
        fmt::format("the optimizer's state: {} names for {} parameters", names.size(), parameters_.size()));
  std::vector<StateEntry> entries;
  for (size_t i = 0; i < names.size(); ++i) {
    for (auto& [what, tensors] : tensors_) entries.push_back({names[i] + "." + what, tensors[i]});
    for (auto& [what, counts] : counts_) entries.push_back({names[i] + "." + what, &counts[i]});
  }
  return entries;
}

std::vector<data::HostTensor> Optimizer::state(const std::vector<std::string>& names) {
  return save_entries(entries(names));
}

void Optimizer::load_state(const std::vector<std::string>& names,
                           const std::vector<data::HostTensor>& tensors, const std::string& file) {
  load_entries(entries(names), tensors, file, "the optimizer");
}

Tensor gradient_arena(const std::vector<Tensor>& parameters) {
  if (parameters.empty()) throw Error("gradient_arena: no parameters");
  check_distinct("gradient_arena", parameters);
  int64_t total = 0;
  for (const Tensor& parameter : parameters) total += parameter.size();
  Tensor arena = Tensor::zeros({total}, parameters.front().device());
  int64_t begin = 0;
  for (Tensor parameter : std::views::reverse(parameters)) {  // a handle
    parameter.set_grad(arena.slice(begin, begin + parameter.size()).reshape(parameter.shape()));
    begin += parameter.size();
  }
  return arena;
}

}  // namespace lockstep::nn
