// Stochastic gradient descent, one element kernel for all variants.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

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

}  // namespace lockstep::kernels
