// Stochastic gradient descent, one element kernel for all variants.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/update.h"

namespace lockstep::kernels {

// PyTorch's conventions (torch.optim.SGD): g = grad * gradient_scale + weight_decay * w;
// v = momentum * v + g; w -= lr * (nesterov ? g + momentum * v : v).
struct SgdSettings {
  float learning_rate;
  float momentum = 0;
  float weight_decay = 0;
  bool nesterov = false;
  float gradient_scale = 1;  // 1 / rows of the whole batch, where the loss is a sum
};

// velocity: [n], zero before the first step; when momentum is 0 it is left alone and may be null.
void sgd_step(const SgdSettings& settings, float* weights, const float* gradient, float* velocity, int64_t n,
              cudaStream_t stream);

// The same for all parameters of a list, in one launch: their first states are the velocities.
void sgd_update(const SgdSettings& settings, const UpdateList& list, const GradientClip& clip,
                cudaStream_t stream);

}  // namespace lockstep::kernels
