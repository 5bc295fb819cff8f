// Element kernels against the same expression in double, at sizes around a warp's, misaligned, with special
// values.
#include "kernels/elementwise.h"

#include <algorithm>
#include <functional>
#include <string>

#include "kernels/exp.cuh"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

constexpr float kFactor = 0.37f;

// An element kernel as out = f(a, out before).
struct Operation {
  std::string name;
  std::function<void(const float* a, float* out, int64_t n)> launch;
  std::function<double(double a, double out)> oracle;
  double roundings;  // relative tolerance, in roundings of the result
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"fill", [](auto, auto out, auto n) { fill(out, kFactor, n, nullptr); },
       [](double, double) { return double{kFactor}; }, 0},
      {"add_into", [](auto a, auto out, auto n) { add_into(out, a, n, nullptr); },
       [](double a, double out) { return a + out; }, 1},
      {"add in place", [](auto a, auto out, auto n) { add(a, out, out, n, nullptr); },
       [](double a, double out) { return a + out; }, 1},
  };
  return all;
}

TEST(Elementwise, AgreesWithTheSameExpressionInDouble) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const Operation& operation : operations())
    for (const size_t n : {0, 1, 31, 32, 33, 1000, 100003})
      for (const size_t offset : {0, 1, 3}) {
        if (n > 1000 && offset == 3) continue;  // fibers are slow
        SCOPED_TRACE(operation.name + " n " + std::to_string(n) + " offset " + std::to_string(offset));
        const std::vector<float> a = values_with_specials(n, 1);
        std::vector<float> before = random_floats(n, -2, 2, 2);
        if (n >= 31) before[1] = kNaN;
        const auto results = results_of_both_forms([&] {
          const DeviceBuffer<float> input(a, offset);
          const DeviceBuffer<float> output(before, offset);
          operation.launch(input.data(), output.data(), static_cast<int64_t>(n));
          return output.to_host();
        });
        for (const auto& got : results)
          for (size_t i = 0; i < n && !testing::Test::HasFailure(); ++i) {
            const double want = operation.oracle(a[i], before[i]);
            expect_near(got[i], want, operation.roundings * kUnit * std::fabs(want),
                        "element " + std::to_string(i));
          }
        expect_same(results[0], results[1]);
        if (testing::Test::HasFailure()) return;
      }
}

TEST(Elementwise, ScaleByReadsTheFactorFromTheDevice) {
  const std::vector<float> x = random_floats(1000, -8, 8);
  in_both_forms([&] {
    const DeviceBuffer<float> input(x), factor(1, kFactor), output(x.size(), kNaN);
    scale_by(input.data(), factor.data(), output.data(), 1000, nullptr);
    const std::vector<float> got = output.to_host();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(got[i], x[i] * kFactor) << "element " << i;
  });
}

// Workers take slices of [0, n): where they begin must not change a bit.
TEST(Elementwise, SlicesGiveTheSameBitsAsTheWhole) {
  const std::vector<float> x = random_floats(1000, -8, 8);
  const DeviceBuffer<float> input(x), factor(1, kFactor), whole(x.size(), kNaN), parts(x.size(), kNaN);
  scale_by(input.data(), factor.data(), whole.data(), 1000, nullptr);
  for (int64_t begin = 0, end = 1; begin < 1000; begin = end, end = std::min<int64_t>(1000, 2 * end + 1))
    scale_by(input.data() + begin, factor.data(), parts.data() + begin, end - begin, nullptr);
  EXPECT_EQ(parts.to_host(), whole.to_host());
}

// A sweep over every 10007th float, NaNs and infinities included.
TEST(ExpPolynomial, IsWithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 10007) {
    const float x = __builtin_bit_cast(float, static_cast<uint32_t>(bits));
    const double want = std::exp(static_cast<double>(x));
    const float got = exp_polynomial(x);
    if (std::isnan(x) || static_cast<float>(want) == kInfinity || want < 0x1p-149) {
      expect_near(got, want < 0x1p-149 ? 0 : want, 0, "exp(" + std::to_string(x) + ")");
      if (testing::Test::HasFailure()) return;
      continue;
    }
    const double unit = std::max(std::ldexp(1.0, std::ilogb(want) - 23), 0x1p-149);
    worst = std::max(worst, std::fabs(got - want) / unit);
    ASSERT_LE(std::fabs(got - want), 2 * unit) << "exp(" << x << ")";
  }
  RecordProperty("worst", std::to_string(worst));
  EXPECT_GT(worst, 0.5);  // the correctly rounded result never is, so the sweep has measured something
}

}  // namespace
}  // namespace lockstep::kernels
