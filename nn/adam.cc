#include "nn/adam.h"

namespace lockstep::nn {

Adam::Adam(std::vector<Tensor> parameters, const kernels::AdamSettings& settings, DecayOn decay_on)
    : Optimizer(std::move(parameters), decay_on),
      first_moments_(add_tensors("first_moment")),
      second_moments_(add_tensors("second_moment")),
      steps_(add_counts("steps")),
      settings_(settings) {}

void Adam::update(size_t index, const Tensor& weights, const Tensor& gradient, const Update& how) {
  kernels::AdamSettings settings = settings_;
  settings.learning_rate = how.learning_rate;
  settings.gradient_scale = how.gradient_scale;
  if (!how.decays) settings.weight_decay = 0;
  kernels::adam_step(settings, ++steps_[index], weights.data<float>(), gradient.data<float>(),
                     first_moments_[index].data<float>(), second_moments_[index].data<float>(),
                     weights.size(), weights.device().stream());
}

}  // namespace lockstep::nn
