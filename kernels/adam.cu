// Adam: one pass over weights, gradient and both moments. What depends on t alone is computed on the host.
#include "kernels/adam.h"

#include <cmath>
#include <string>

#include "kernels/check.h"
#include "kernels/map.cuh"

namespace lockstep::kernels {

void adam_step(const AdamSettings& settings, int64_t t, float* weights, const float* gradient,
               float* first_moment, float* second_moment, int64_t n, cudaStream_t stream) {
  if (t < 1) throw Error("adam_step: step " + std::to_string(t) + ": steps are counted from 1");
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(t));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(t));
  const auto step_size = static_cast<float>(settings.learning_rate / correction1);
  const auto root_factor = static_cast<float>(1 / std::sqrt(correction2));
  const auto keep1 = static_cast<float>(settings.beta1), take1 = static_cast<float>(1 - settings.beta1);
  const auto keep2 = static_cast<float>(settings.beta2), take2 = static_cast<float>(1 - settings.beta2);
  const float gradient_scale = settings.gradient_scale, epsilon = settings.epsilon;
  // The decay acts on the gradient (Adam) or on the weight (AdamW).
  const float gradient_decay = settings.decoupled ? 0.0f : settings.weight_decay;
  const float shrink = settings.decoupled ? settings.learning_rate * settings.weight_decay : 0.0f;
  launch_map(
      stream, n,
      [=] __device__(float& w, float dw, float& m, float& v) {
        const float g = dw * gradient_scale + gradient_decay * w;
        m = keep1 * m + take1 * g;
        v = keep2 * v + take2 * (g * g);
        w = (w - shrink * w) - step_size * (m / (sqrtf(v) * root_factor + epsilon));
      },
      weights, gradient, first_moment, second_moment);
}

}  // namespace lockstep::kernels
