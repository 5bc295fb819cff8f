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
  void update(const kernels::UpdateList& list, int64_t step, const Update& how, cudaStream_t stream) override;
  int64_t begin_step(size_t index) override { return ++steps_[index]; }

  std::vector<int64_t>& steps_;  // of each parameter: one without a gradient does not step
  AdamOptions options_;
};

}  // namespace lockstep::nn
