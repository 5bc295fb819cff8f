// Three steps of SGD in every variant against torch.optim.SGD's formulas in double.
#include "kernels/sgd.h"

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/one_parameter.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

const SgdSettings kVariants[] = {
    {.learning_rate = 0.1f},
    {.learning_rate = 0.1f, .weight_decay = 0.05f, .gradient_scale = 0.25f},
    {.learning_rate = 0.1f, .momentum = 0.9f},
    {.learning_rate = 0.1f,
     .momentum = 0.9f,
     .weight_decay = 0.05f,
     .nesterov = true,
     .gradient_scale = 0.25f},
};

TEST(SgdStep, FollowsTheFormulaForThreeSteps) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const SgdSettings& s : kVariants)
    for (const size_t n : {0, 1, 31, 32, 33, 1000, 20011}) {
      SCOPED_TRACE("momentum " + std::to_string(s.momentum) + " n " + std::to_string(n));
      const std::vector<float> start = random_floats(n, -1, 1, 1), gradient = random_floats(n, -1, 1, 2);
      std::vector<double> w(start.begin(), start.end()), v(n, 0.0);
      for (int step = 0; step < 3; ++step)
        for (size_t i = 0; i < n; ++i) {
          const double g = double{gradient[i]} * s.gradient_scale + double{s.weight_decay} * w[i];
          v[i] = double{s.momentum} * v[i] + g;
          w[i] -= double{s.learning_rate} * (s.nesterov ? g + double{s.momentum} * v[i] : v[i]);
        }
      const auto results = results_of_both_forms([&] {
        const DeviceBuffer<float> weights(start, 1), gradients(gradient, 3), velocity(n, 0.0f);
        const OneParameter parameter(weights, gradients, s.momentum == 0 ? nullptr : &velocity);
        for (int step = 0; step < 3; ++step) sgd_update(s, parameter.list(), {}, nullptr);
        EXPECT_EQ(gradients.to_host(), gradient);
        if (s.momentum != 0) {
          const std::vector<float> got = velocity.to_host();
          // |g| <= 1.1, |v| <= 3: three steps of at most 4 roundings each of values below 4.
          for (size_t i = 0; i < n; ++i)
            expect_near(got[i], v[i], 12 * 4 * kUnit, "velocity " + std::to_string(i));
        }
        return weights.to_host();
      });
      // A step rounds the weight (below 2) once, and an update (below 0.6) some six times.
      for (size_t i = 0; i < n; ++i)
        expect_near(results[0][i], w[i], 3 * (2 + 6 * 0.6) * kUnit, "weight " + std::to_string(i));
      expect_same(results[0], results[1]);
    }
}

TEST(SgdStep, OfOneTensorIsTheUpdateWithoutMomentum) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const size_t n : {0, 1, 31, 1000, 20011}) {
    const std::vector<float> start = random_floats(n, -1, 1, 1), gradient = random_floats(n, -1, 1, 2);
    in_both_forms([&] {
      const DeviceBuffer<float> one(start, 1), listed(start, 1), gradients(gradient, 3);
      const OneParameter parameter(listed, gradients);
      sgd_step(0.1f, 0.25f, one.data(), gradients.data(), static_cast<int64_t>(n), nullptr);
      sgd_update({.learning_rate = 0.1f, .gradient_scale = 0.25f}, parameter.list(), {}, nullptr);
      expect_same(one.to_host(), listed.to_host());
    });
  }
}

}  // namespace
}  // namespace lockstep::kernels
