#include "nn/sgd.h"

#include "kernels/sgd.h"

namespace lockstep::nn {

Sgd::Sgd(std::vector<Tensor> parameters, const SgdOptions& options, DecayOn decay_on)
    : Optimizer(std::move(parameters), decay_on), options_(options) {
  if (options_.momentum != 0) add_tensors("velocity");
}

void Sgd::update(const kernels::UpdateList& list, int64_t /*step*/, const Update& how, cudaStream_t stream) {
  const kernels::SgdSettings settings{.learning_rate = how.learning_rate,
                                      .momentum = options_.momentum,
                                      .weight_decay = options_.weight_decay,
                                      .nesterov = options_.nesterov,
                                      .gradient_scale = how.gradient_scale};
  kernels::sgd_update(settings, list, how.clip, stream);
}

}  // namespace lockstep::nn
