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
  void update(const kernels::UpdateList& list, int64_t step, const Update& how, cudaStream_t stream) override;

  SgdOptions options_;
};

}  // namespace lockstep::nn
