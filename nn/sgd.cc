#include "nn/sgd.h"

namespace lockstep::nn {

Sgd::Sgd(std::vector<Tensor> parameters, const kernels::SgdSettings& settings, DecayOn decay_on)
    : Optimizer(std::move(parameters), decay_on), settings_(settings) {
  if (settings_.momentum != 0) velocities_ = &add_tensors("velocity");
}

void Sgd::update(size_t index, const Tensor& weights, const Tensor& gradient, const Update& how) {
  kernels::SgdSettings settings = settings_;
  settings.learning_rate = how.learning_rate;
  settings.gradient_scale = how.gradient_scale;
  if (!how.decays) settings.weight_decay = 0;
  kernels::sgd_step(settings, weights.data<float>(), gradient.data<float>(),
                    velocities_ == nullptr ? nullptr : (*velocities_)[index].data<float>(), weights.size(),
                    weights.device().stream());
}

}  // namespace lockstep::nn
