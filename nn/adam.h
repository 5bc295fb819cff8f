// Adam and AdamW over a list of parameters, with PyTorch's conventions (kernels/adam.h).
#pragma once

#include <vector>

#include "nn/optimizer.h"

namespace lockstep::nn {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  float epsilon = 1e-8F;
  float weight_decay = 0;
  bool decoupled = false;  // AdamW: the decay does not pass through the moments
};

class Adam : public Optimizer {
 public:
  Adam(std::vector<Tensor> parameters, const AdamOptions& options,
       DecayOn decay_on = DecayOn::all_parameters);

 private:
  void update(size_t index, const Tensor& weights, const Tensor& gradient, const Update& how) override;

  const std::vector<Tensor>&first_moments_, &second_moments_;
  std::vector<int64_t>& steps_;  // of each parameter: one without a gradient does not step
  AdamOptions options_;
};

}  // namespace lockstep::nn
