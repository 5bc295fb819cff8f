// Adam and AdamW (Kingma and Ba, 2015; Loshchilov and Hutter, 2019), one kernel for both.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/update.h"

namespace lockstep::kernels {

// PyTorch's conventions (torch.optim.Adam and AdamW), for step t = 1, 2, ...:
//   g = grad * gradient_scale, and + weight_decay * w where the decay is not decoupled
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w -= lr * weight_decay * w where the decay is decoupled (AdamW)
//   w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
// The betas are double: 1 - beta2 of a float 0.999 would be off by 1e-5 of itself.
struct AdamSettings {
  float learning_rate;
  double beta1 = 0.9;
  double beta2 = 0.999;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  bool decoupled = false;
  float gradient_scale = 1;  // 1 / rows of the whole batch, where the loss is a sum
};

// All parameters of a list, in one launch. Their states are the two moments, zero before the first step. `t`
// counts the steps of these weights, from 1; throws for less.
void adam_update(const AdamSettings& settings, int64_t t, const UpdateList& list, const GradientClip& clip,
                 cudaStream_t stream);

}  // namespace lockstep::kernels
