// Stochastic gradient descent, one kernel for all variants.
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

// One parameter without momentum: w -= learning_rate * gradient_scale * grad.
void sgd_step(float learning_rate, float gradient_scale, float* weights, const float* gradient, int64_t n,
              cudaStream_t stream);

// All parameters of a list, in one launch. Their first states are the velocities, zero before the first step;
// without momentum they have none.
void sgd_update(const SgdSettings& settings, const UpdateList& list, const GradientClip& clip,
                cudaStream_t stream);

}  // namespace lockstep::kernels
