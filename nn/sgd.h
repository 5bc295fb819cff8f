// Stochastic gradient descent over a list of parameters, with PyTorch's conventions (kernels/sgd.h).
#pragma once

#include <vector>

#include "nn/optimizer.h"

namespace lockstep::nn {

struct SgdOptions {
  float momentum = 0;
  float weight_decay = 0;
  bool nesterov = false;
};

class Sgd : public Optimizer {
 public:
  Sgd(std::vector<Tensor> parameters, const SgdOptions& options, DecayOn decay_on = DecayOn::all_parameters);

 private:
  void update(size_t index, const Tensor& weights, const Tensor& gradient, const Update& how) override;

  const std::vector<Tensor>* velocities_ = nullptr;  // null where there is no momentum
  SgdOptions options_;
};

}  // namespace lockstep::nn
