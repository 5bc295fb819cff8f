// Stochastic gradient descent over a list of parameters, with PyTorch's conventions (kernels/sgd.h).
#pragma once

#include <vector>

#include "core/tensor.h"
#include "kernels/sgd.h"

namespace lockstep::nn {

class Sgd {
 public:
  // `settings.learning_rate` and `gradient_scale` are given anew at each step.
  Sgd(std::vector<Tensor> parameters, const kernels::SgdSettings& settings);
  // Updates every parameter that has a gradient: the sum in grad() times `gradient_scale`, 1 / rows of the
  // whole batch where the loss was a sum.
  void step(float learning_rate, float gradient_scale = 1.0f);

 private:
  std::vector<Tensor> parameters_;
  std::vector<Tensor> velocities_;  // empty where there is no momentum
  kernels::SgdSettings settings_;
};

// One tensor that holds the gradients of all parameters, the last layer's first (backward fills it from the
// front), and is set as their grad(): reducing it reduces all of them. Starts as zeros; backward adds to it.
Tensor gradient_arena(const std::vector<Tensor>& parameters);

}  // namespace lockstep::nn
