// Adam: one pass over weights, gradient and both moments. What depends on t alone is computed on the host.
#include "kernels/adam.h"

#include <cmath>
#include <string>

#include "kernels/check.h"
#include "kernels/update.cuh"

namespace lockstep::kernels {

namespace {

struct Rule {
  static constexpr int kStates = 2;
  float step_size, root_factor, keep1, take1, keep2, take2, gradient_scale, epsilon;
  // The decay acts on the gradient (Adam) or on the weight (AdamW).
  float gradient_decay, shrink;

  Rule(const AdamSettings& s, int64_t t)
      : keep1(static_cast<float>(s.beta1)),
        take1(static_cast<float>(1 - s.beta1)),
        keep2(static_cast<float>(s.beta2)),
        take2(static_cast<float>(1 - s.beta2)),
        gradient_scale(s.gradient_scale),
        epsilon(s.epsilon),
        gradient_decay(s.decoupled ? 0.0f : s.weight_decay),
        shrink(s.decoupled ? s.learning_rate * s.weight_decay : 0.0f) {
    if (t < 1) throw Error("adam: step " + std::to_string(t) + ": steps are counted from 1");
    const double correction1 = 1 - std::pow(s.beta1, static_cast<double>(t));
    const double correction2 = 1 - std::pow(s.beta2, static_cast<double>(t));
    step_size = static_cast<float>(s.learning_rate / correction1);
    root_factor = static_cast<float>(1 / std::sqrt(correction2));
  }
  __host__ __device__ void operator()(float& w, float dw, float& m, float& v, float decays) const {
    const float g = dw * gradient_scale + gradient_decay * decays * w;
    m = keep1 * m + take1 * g;
    v = keep2 * v + take2 * (g * g);
    w = (w - shrink * decays * w) - step_size * (m / (sqrtf(v) * root_factor + epsilon));
  }
};

}  // namespace

void adam_update(const AdamSettings& settings, int64_t t, const UpdateList& list, const GradientClip& clip,
                 cudaStream_t stream) {
  launch_update(list, Rule(settings, t), clip, stream);
}

}  // namespace lockstep::kernels
