#include "nn/adam.h"

#include "kernels/adam.h"

namespace lockstep::nn {

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options, DecayOn decay_on)
    : Optimizer(std::move(parameters), decay_on),
      first_moments_(add_tensors("first_moment")),
      second_moments_(add_tensors("second_moment")),
      steps_(add_counts("steps")),
      options_(options) {}

void Adam::update(size_t index, const Tensor& weights, const Tensor& gradient, const Update& how) {
  const kernels::AdamSettings settings{.learning_rate = how.learning_rate,
                                       .beta1 = options_.beta1,
                                       .beta2 = options_.beta2,
                                       .epsilon = options_.epsilon,
                                       .weight_decay = how.decays ? options_.weight_decay : 0,
                                       .decoupled = options_.decoupled,
                                       .gradient_scale = how.gradient_scale};
  kernels::adam_step(settings, ++steps_[index], weights.data<float>(), gradient.data<float>(),
                     first_moments_[index].data<float>(), second_moments_[index].data<float>(),
                     weights.size(), weights.device().stream());
}

}  // namespace lockstep::nn
