// Every activation of the table against its formula and its derivative in double, at sizes around a warp's,
// misaligned, with special values.
#include "kernels/activation.h"

#include <functional>
#include <string>

#include "tests/bfloat16.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

double normal_distribution(double x) {
  return 0.5 * std::erfc(-x * M_SQRT1_2);
}

double x_times_density(double x) {
  return x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
}

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

// Where a factor of x is denormal, the steps of it count once for each unit of x: as a magnitude.
double steps_of_a_factor(double x) {
  return 0x1p-149 / kUnit * (1 + std::fabs(x));
}

// In double, and how many roundings of which magnitude the float may be off: of the largest term of a sum.
struct Wanted {
  double value, roundings, magnitude;
};

// The value at x, and the derivative as a function of what F::kReads says.
struct Oracle {
  std::function<Wanted(double x)> value, slope;
};

template <typename F>
Oracle oracle();

template <>
Oracle oracle<activations::ReLU>() {
  return {[](double x) -> Wanted { return {x <= 0 ? 0 : x, 0, 0}; },
          [](double y) -> Wanted { return {y > 0 ? 1.0 : 0.0, 0, 0}; }};
}

// The exponential is within 4 roundings, sum and quotient add one each.
template <>
Oracle oracle<activations::Sigmoid>() {
  return {[](double x) -> Wanted { return {logistic(x), 6, logistic(x)}; },
          [](double y) -> Wanted { return {y * (1 - y), 3, std::fabs(y * (1 - y))}; }};
}

// A rounding of x / sqrt(2), or of its square, is one of x^2 in the exponent.
template <>
Oracle oracle<activations::GELU>() {
  return {[](double x) -> Wanted {
            const double y = x * normal_distribution(x);
            return {y, 8 + 4 * x * x, std::fabs(y) + steps_of_a_factor(x)};
          },
          [](double x) -> Wanted {
            const double distribution = normal_distribution(x), other = x_times_density(x);
            return {distribution + other, 12 + 4 * x * x,
                    std::fmax(distribution, std::fabs(other)) + steps_of_a_factor(x)};
          }};
}

template <>
Oracle oracle<activations::SiLU>() {
  return {[](double x) -> Wanted {
            return {x * logistic(x), 7, std::fabs(x * logistic(x)) + steps_of_a_factor(x)};
          },
          [](double x) -> Wanted {
            const double s = logistic(x), other = x * (1 - s);
            return {s * (1 + other), 16, s * std::fmax(1, std::fabs(other)) + steps_of_a_factor(x)};
          }};
}

// launch(kept, out) over both forms of the kernel, at many sizes and offsets; where `of_gradient`, the result
// is multiplied by what `out` held before.
void expect_values(const std::function<void(const float*, float*, int64_t)>& launch,
                   const std::function<Wanted(double)>& want, bool of_gradient) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const size_t n : {0, 1, 31, 32, 33, 1000, 100003})
    for (const size_t offset : {0, 1, 3}) {
      if (n > 1000 && offset == 3) continue;  // fibers are slow
      SCOPED_TRACE("n " + std::to_string(n) + " offset " + std::to_string(offset));
      const std::vector<float> kept = values_with_specials(n, 1);
      std::vector<float> before = random_floats(n, -2, 2, 2);
      if (n >= 31) before[1] = kNaN;
      const auto results = results_of_both_forms([&] {
        const DeviceBuffer<float> input(kept, offset), output(before, offset);
        launch(input.data(), output.data(), static_cast<int64_t>(n));
        return output.to_host();
      });
      for (const auto& got : results)
        for (size_t i = 0; i < n && !testing::Test::HasFailure(); ++i) {
          const Wanted wanted = want(kept[i]);
          const double factor = of_gradient ? before[i] : 1;
          const double value = wanted.magnitude == 0 && wanted.value == 0 ? 0 : wanted.value * factor;
          const double tolerance = wanted.roundings * std::fabs(factor) * kUnit * wanted.magnitude;
          expect_near(got[i], value, std::isfinite(tolerance) ? tolerance : 0,
                      "at " + std::to_string(kept[i]) + ", element " + std::to_string(i));
        }
      expect_same(results[0], results[1]);
      if (testing::Test::HasFailure()) return;
    }
}

template <typename F>
void expect_formula_and_derivative() {
  const Oracle in_double = oracle<F>();
  {
    SCOPED_TRACE("forward");
    expect_values([](auto x, auto y, auto n) { activation_forward<F>(x, y, n, nullptr); }, in_double.value,
                  false);
  }
  SCOPED_TRACE("backward, in place of the gradient");
  expect_values([](auto kept, auto dy, auto n) { activation_backward<F>(kept, dy, dy, n, nullptr); },
                in_double.slope, true);
}

template <typename F>
void expect_one_rounding_to_bfloat16() {
  const std::vector<float> kept = through_bfloat16(values_with_specials(1000, 1));
  const std::vector<float> dy = through_bfloat16(random_floats(1000, -2, 2, 2));
  in_both_forms([&] {
    const DeviceBuffer<float> x(kept), y(kept), dx(dy);
    const DeviceBuffer<__nv_bfloat16> x16(rounded(kept), 1), y16(rounded(kept), 3), dx16(rounded(dy), 1);
    activation_forward<F>(x.data(), y.data(), 1000, nullptr);
    activation_forward<F>(x16.data(), y16.data(), 1000, nullptr);
    expect_same(widened(y16.to_host()), through_bfloat16(y.to_host()));
    activation_backward<F>(x.data(), dx.data(), dx.data(), 1000, nullptr);
    activation_backward<F>(x16.data(), dx16.data(), dx16.data(), 1000, nullptr);
    expect_same(widened(dx16.to_host()), through_bfloat16(dx.to_host()));
  });
}

#define LOCKSTEP_TEST(function, F)                     \
  TEST(Activation, F##IsItsFormulaInDouble) {          \
    expect_formula_and_derivative<activations::F>();   \
  }                                                    \
  TEST(Activation, F##OverBfloat16RoundsOnce) {        \
    expect_one_rounding_to_bfloat16<activations::F>(); \
  }
LOCKSTEP_ACTIVATIONS(LOCKSTEP_TEST)
#undef LOCKSTEP_TEST

}  // namespace
}  // namespace lockstep::kernels
