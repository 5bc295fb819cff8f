// Stochastic gradient descent: one pass over weights, gradient and velocity.
#include "kernels/sgd.h"

#include "kernels/map.cuh"
#include "kernels/update.cuh"

namespace lockstep::kernels {

namespace {

// Both variants of momentum are one expression: the step is lr * (a g + b v).
struct Momentum {
  static constexpr int kStates = 1;
  float learning_rate, momentum, weight_decay, gradient_scale, a, b;

  explicit Momentum(const SgdSettings& s)
      : learning_rate(s.learning_rate),
        momentum(s.momentum),
        weight_decay(s.weight_decay),
        gradient_scale(s.gradient_scale),
        a(s.nesterov ? 1.0f : 0.0f),
        b(s.nesterov ? s.momentum : 1.0f) {}
  __host__ __device__ void operator()(float& w, float dw, float& v, float& /*none*/, float decays) const {
    const float g = dw * gradient_scale + weight_decay * decays * w;
    v = momentum * v + g;
    w = w - learning_rate * (a * g + b * v);
  }
};

struct Plain {
  static constexpr int kStates = 0;
  float learning_rate, weight_decay, gradient_scale;

  explicit Plain(const SgdSettings& s)
      : learning_rate(s.learning_rate), weight_decay(s.weight_decay), gradient_scale(s.gradient_scale) {}
  __host__ __device__ void operator()(float& w, float dw, float& /*none*/, float& /*none*/,
                                      float decays) const {
    w = w - learning_rate * (dw * gradient_scale + weight_decay * decays * w);
  }
};

}  // namespace

void sgd_update(const SgdSettings& settings, const UpdateList& list, const GradientClip& clip,
                cudaStream_t stream) {
  if (settings.momentum == 0.0f)
    launch_update(list, Plain(settings), clip, stream);
  else
    launch_update(list, Momentum(settings), clip, stream);
}

void sgd_step(float learning_rate, float gradient_scale, float* weights, const float* gradient, int64_t n,
              cudaStream_t stream) {
  const Plain rule({.learning_rate = learning_rate, .gradient_scale = gradient_scale});
  launch_map(
      stream, n,
      [=] __device__(float& w, float dw) {
        float none = 0;
        rule(w, dw, none, none, 1.0f);
      },
      weights, gradient);
}

}  // namespace lockstep::kernels
