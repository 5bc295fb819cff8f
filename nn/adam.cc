#include "nn/adam.h"

#include "kernels/adam.h"

namespace lockstep::nn {

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options, DecayOn decay_on)
    : Optimizer(std::move(parameters), decay_on), steps_(add_counts("steps")), options_(options) {
  add_tensors("first_moment");
  add_tensors("second_moment");
}

void Adam::update(const kernels::UpdateList& list, int64_t step, const Update& how, cudaStream_t stream) {
  const kernels::AdamSettings settings{.learning_rate = how.learning_rate,
                                       .beta1 = options_.beta1,
                                       .beta2 = options_.beta2,
                                       .epsilon = options_.epsilon,
                                       .weight_decay = options_.weight_decay,
                                       .decoupled = options_.decoupled,
                                       .gradient_scale = how.gradient_scale};
  kernels::adam_update(settings, step, list, how.clip, stream);
}

}  // namespace lockstep::nn
