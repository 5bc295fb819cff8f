#include "nn/optimizer.h"

#include "kernels/check.h"

namespace lockstep::nn {

Optimizer::Optimizer(std::vector<Tensor> parameters, DecayOn decay_on)
    : parameters_(std::move(parameters)), decay_on_(decay_on) {}

void Optimizer::step(float learning_rate, float gradient_scale) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& weights = parameters_[i];
    const Tensor gradient = weights.grad();
    if (!gradient.defined()) continue;
    const DeviceGuard guard(weights.device());
    const bool decays = decay_on_ == DecayOn::all_parameters || weights.shape().size() > 1;
    update(i, weights, gradient, {learning_rate, gradient_scale, decays});
  }
}

std::vector<Tensor> Optimizer::zeros() const {
  std::vector<Tensor> result;
  for (const Tensor& parameter : parameters_)
    result.push_back(Tensor::zeros(parameter.shape(), parameter.device()));
  return result;
}

Tensor gradient_arena(const std::vector<Tensor>& parameters) {
  if (parameters.empty()) throw Error("gradient_arena: no parameters");
  int64_t total = 0;
  for (const Tensor& parameter : parameters) total += parameter.size();
  Tensor arena = Tensor::zeros({total}, parameters.front().device());
  int64_t begin = 0;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    parameter->set_grad(arena.slice(begin, begin + parameter->size()).reshape(parameter->shape()));
    begin += parameter->size();
  }
  return arena;
}

}  // namespace lockstep::nn
