#include "nn/sgd.h"

#include "kernels/check.h"

namespace lockstep::nn {

Sgd::Sgd(std::vector<Tensor> parameters, const kernels::SgdSettings& settings)
    : parameters_(std::move(parameters)), settings_(settings) {
  if (settings_.momentum == 0) return;
  for (const Tensor& parameter : parameters_)
    velocities_.push_back(Tensor::zeros(parameter.shape(), parameter.device()));
}

void Sgd::step(float learning_rate, float gradient_scale) {
  kernels::SgdSettings settings = settings_;
  settings.learning_rate = learning_rate;
  settings.gradient_scale = gradient_scale;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& weights = parameters_[i];
    const Tensor gradient = weights.grad();
    if (!gradient.defined()) continue;
    const DeviceGuard guard(weights.device());
    kernels::sgd_step(settings, weights.data<float>(), gradient.data<float>(),
                      velocities_.empty() ? nullptr : velocities_[i].data<float>(), weights.size(),
                      weights.device().stream());
  }
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
