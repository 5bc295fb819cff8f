// Stochastic gradient descent: one pass over weights, gradient and velocity.
#include "kernels/sgd.h"

#include "kernels/check.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {

void sgd_step(const SgdSettings& settings, float* weights, const float* gradient, float* velocity, int64_t n,
              cudaStream_t stream) {
  const float learning_rate = settings.learning_rate;
  const float momentum = settings.momentum;
  const float weight_decay = settings.weight_decay;
  const float gradient_scale = settings.gradient_scale;
  if (momentum == 0.0f) {
    launch_elements(stream, n, [=] __device__(int64_t i) {
      const float w = weights[i];
      weights[i] = w - learning_rate * (gradient[i] * gradient_scale + weight_decay * w);
    });
    return;
  }
  if (velocity == nullptr && n > 0)
    throw Error("sgd_step: momentum without a velocity buffer: pass one, or set momentum to 0");
  // The step is lr * (a g + b v): both variants are one expression.
  const float a = settings.nesterov ? 1.0f : 0.0f;
  const float b = settings.nesterov ? momentum : 1.0f;
  launch_elements(stream, n, [=] __device__(int64_t i) {
    const float w = weights[i];
    const float g = gradient[i] * gradient_scale + weight_decay * w;
    const float v = momentum * velocity[i] + g;
    velocity[i] = v;
    weights[i] = w - learning_rate * (a * g + b * v);
  });
}

}  // namespace lockstep::kernels
