#include "nn/sgd.h"

#include "kernels/sgd.h"

namespace lockstep::nn {

Sgd::Sgd(std::vector<Tensor> parameters, const SgdOptions& options, DecayOn decay_on)
    : Optimizer(std::move(parameters), decay_on), options_(options) {
  if (options_.momentum != 0) velocities_ = &add_tensors("velocity");
}

void Sgd::update(size_t index, const Tensor& weights, const Tensor& gradient, const Update& how) {
  const kernels::SgdSettings settings{.learning_rate = how.learning_rate,
                                      .momentum = options_.momentum,
                                      .weight_decay = how.decays ? options_.weight_decay : 0,
                                      .nesterov = options_.nesterov,
                                      .gradient_scale = how.gradient_scale};
  kernels::sgd_step(settings, weights.data<float>(), gradient.data<float>(),
                    velocities_ == nullptr ? nullptr : (*velocities_)[index].data<float>(), weights.size(),
                    weights.device().stream());
}

}  // namespace lockstep::nn
