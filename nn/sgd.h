// Stochastic gradient descent over a list of parameters, with PyTorch's conventions (kernels/sgd.h).
#pragma once

#include <vector>

#include "kernels/sgd.h"
#include "nn/optimizer.h"

namespace lockstep::nn {

class Sgd : public Optimizer {
 public:
  // `settings.learning_rate` and `gradient_scale` are given anew at each step.
  Sgd(std::vector<Tensor> parameters, const kernels::SgdSettings& settings,
      DecayOn decay_on = DecayOn::all_parameters);

 private:
  void update(size_t index, const Tensor& weights, const Tensor& gradient, const Update& how) override;

  const std::vector<Tensor>* velocities_ = nullptr;  // null where there is no momentum
  kernels::SgdSettings settings_;
};

}  // namespace lockstep::nn
