// Stochastic gradient descent: one pass over weights, gradient and velocity.
#include "kernels/sgd.h"

#include "kernels/check.h"
#include "kernels/map.cuh"

namespace lockstep::kernels {

void sgd_step(const SgdSettings& settings, float* weights, const float* gradient, float* velocity, int64_t n,
              cudaStream_t stream) {
  const float learning_rate = settings.learning_rate;
  const float momentum = settings.momentum;
  const float weight_decay = settings.weight_decay;
  const float gradient_scale = settings.gradient_scale;
  if (momentum == 0.0f) {
    launch_map(
        stream, n,
        [=] __device__(float& w, float g) {
          w = w - learning_rate * (g * gradient_scale + weight_decay * w);
        },
        weights, gradient);
    return;
  }
  if (velocity == nullptr && n > 0)
    throw Error("sgd_step: momentum without a velocity buffer: pass one, or set momentum to 0");
  // The step is lr * (a g + b v): both variants are one expression.
  const float a = settings.nesterov ? 1.0f : 0.0f;
  const float b = settings.nesterov ? momentum : 1.0f;
  launch_map(
      stream, n,
      [=] __device__(float& w, float dw, float& v) {
        const float g = dw * gradient_scale + weight_decay * w;
        v = momentum * v + g;
        w = w - learning_rate * (a * g + b * v);
      },
      weights, gradient, velocity);
}

}  // namespace lockstep::kernels
