// Three steps of Adam and AdamW against the papers' formulas in double.
#include "kernels/adam.h"

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/one_parameter.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

const AdamSettings kVariants[] = {
    {.learning_rate = 0.1f},
    {.learning_rate = 0.1f, .weight_decay = 0.05f, .gradient_scale = 0.25f},
    {.learning_rate = 0.1f, .weight_decay = 0.05f, .decoupled = true, .gradient_scale = 0.25f},
    {.learning_rate = 0.1f, .beta1 = 0, .beta2 = 0.5, .epsilon = 0.125f},
};

TEST(AdamStep, FollowsTheFormulaForThreeSteps) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  constexpr int kSteps = 3;
  for (const AdamSettings& s : kVariants)
    for (const size_t n : {0, 1, 31, 32, 33, 1000, 20011}) {
      SCOPED_TRACE("beta1 " + std::to_string(s.beta1) + " decay " + std::to_string(s.weight_decay) +
                   (s.decoupled ? " decoupled" : "") + " n " + std::to_string(n));
      const std::vector<float> start = random_floats(n, -1, 1, 1);
      std::vector<std::vector<float>> gradients;
      for (int step = 0; step < kSteps; ++step) gradients.push_back(random_floats(n, 0.4f, 1, 2 + step));
      std::vector<double> w(start.begin(), start.end()), m(n, 0.0), v(n, 0.0);
      for (int t = 1; t <= kSteps; ++t)
        for (size_t i = 0; i < n; ++i) {
          double g = double{gradients[t - 1][i]} * s.gradient_scale;
          if (s.decoupled)
            w[i] -= double{s.learning_rate} * s.weight_decay * w[i];
          else
            g += double{s.weight_decay} * w[i];
          m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
          v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
          const double m_hat = m[i] / (1 - std::pow(s.beta1, t)), v_hat = v[i] / (1 - std::pow(s.beta2, t));
          w[i] -= double{s.learning_rate} * m_hat / (std::sqrt(v_hat) + s.epsilon);
        }
      const auto results = results_of_both_forms([&] {
        const DeviceBuffer<float> weights(start, 1), first(n, 0.0f), second(n, 0.0f);
        for (int t = 1; t <= kSteps; ++t) {
          const DeviceBuffer<float> gradient(gradients[t - 1], 3);
          const OneParameter parameter(weights, gradient, &first, &second);
          adam_update(s, t, parameter.list(), {}, nullptr);
          EXPECT_EQ(gradient.to_host(), gradients[t - 1]);
        }
        const std::vector<float> got_m = first.to_host(), got_v = second.to_host();
        // |g| <= 1.1 and so are both moments, at most 1.21: a dozen roundings of values below 1.21 a step.
        for (size_t i = 0; i < n; ++i) {
          expect_near(got_m[i], m[i], kSteps * 12 * 1.21 * kUnit, "first moment " + std::to_string(i));
          expect_near(got_v[i], v[i], kSteps * 12 * 1.21 * kUnit, "second moment " + std::to_string(i));
        }
        return weights.to_host();
      });
      // A step rounds the weight (below 2) twice. The move is below 0.25, from some 24 roundings; those of
      // the gradient count twice, as the decay may halve it.
      for (size_t i = 0; i < n; ++i)
        expect_near(results[0][i], w[i], kSteps * (2 * 2 + 2 * 24 * 0.25) * kUnit,
                    "weight " + std::to_string(i));
      expect_same(results[0], results[1]);
    }
}

TEST(AdamStep, CountsItsStepsFromOne) {
  const DeviceBuffer<float> weights(4, 1.0f), gradient(4, 1.0f), first(4, 0.0f), second(4, 0.0f);
  const OneParameter parameter(weights, gradient, &first, &second);
  EXPECT_THROW(adam_update({.learning_rate = 0.1f}, 0, parameter.list(), {}, nullptr), Error);
}

}  // namespace
}  // namespace lockstep::kernels
