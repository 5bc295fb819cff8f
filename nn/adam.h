// Adam and AdamW over a list of parameters, with PyTorch's conventions (kernels/adam.h).
#pragma once

#include <vector>

#include "kernels/adam.h"
#include "nn/optimizer.h"

namespace lockstep::nn {

class Adam : public Optimizer {
 public:
  // AdamW where `settings.decoupled`. `settings.learning_rate` and `gradient_scale` are given anew at each
  // step.
  Adam(std::vector<Tensor> parameters, const kernels::AdamSettings& settings,
       DecayOn decay_on = DecayOn::all_parameters);

 private:
  void update(size_t index, const Tensor& weights, const Tensor& gradient, const Update& how) override;

  const std::vector<Tensor>&first_moments_, &second_moments_;
  std::vector<int64_t>& steps_;  // of each parameter: one without a gradient does not step
  kernels::AdamSettings settings_;
};

}  // namespace lockstep::nn
