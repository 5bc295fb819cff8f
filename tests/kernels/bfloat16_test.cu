// Kernels over bfloat16 read into float, compute in float and round once: so each gives exactly the rounded
// results of its float form on the same values, and no tolerance is needed.
#include <functional>
#include <string>

#include "kernels/elementwise.h"
#include "tests/bfloat16.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

std::vector<float> values_with_specials(size_t n, uint32_t salt) {
  std::vector<float> values = random_floats(n, -8, 8, salt);
  const float specials[] = {kNaN, kInfinity, -kInfinity, -0.0f, 0.0f, 0x1p-133f, 0x1p-126f, 100};
  for (size_t i = 0; i < std::size(specials) && 3 * i < n; ++i) values[3 * i] = specials[i];
  return through_bfloat16(values);
}

TEST(Cast, RoundsToTheNearestAndComesBack) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const size_t n : {1, 31, 33, 1000}) {
    std::vector<float> values = random_floats(n, -8, 8);
    values[0] = 1 + 0x1p-8f;  // a tie: to even, which is 1
    in_both_forms([&] {
      const DeviceBuffer<float> from(values, 1), back(n, kNaN);
      const DeviceBuffer<__nv_bfloat16> to(std::vector<__nv_bfloat16>(n), 3);
      cast(from.data(), to.data(), static_cast<int64_t>(n), nullptr);
      cast(to.data(), back.data(), static_cast<int64_t>(n), nullptr);
      expect_same(widened(to.to_host()), through_bfloat16(values));
      expect_same(back.to_host(), through_bfloat16(values));
      EXPECT_EQ(back.to_host()[0], 1.0f);
    });
  }
}

// out = f(a, out before), with T either type.
template <typename T>
struct Operation {
  std::string name;
  std::function<void(const T* a, T* out, int64_t n)> launch;
};

template <typename T>
std::vector<Operation<T>> operations() {
  return {{"fill", [](auto, auto out, auto n) { fill(out, 0.37f, n, nullptr); }},
          {"add_into", [](auto a, auto out, auto n) { add_into(out, a, n, nullptr); }},
          {"add", [](auto a, auto out, auto n) { add(a, out, out, n, nullptr); }}};
}

TEST(Elementwise, OverBfloat16RoundsTheFloatResultOnce) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const auto of_float = operations<float>();
  const auto of_bfloat16 = operations<__nv_bfloat16>();
  for (size_t o = 0; o < of_float.size(); ++o)
    for (const size_t n : {0, 1, 31, 33, 1000}) {
      SCOPED_TRACE(of_float[o].name + " n " + std::to_string(n));
      const std::vector<float> a = values_with_specials(n, 1);
      const std::vector<float> before = through_bfloat16(random_floats(n, -2, 2, 2));
      in_both_forms([&] {
        const DeviceBuffer<float> input(a), output(before);
        of_float[o].launch(input.data(), output.data(), static_cast<int64_t>(n));
        const DeviceBuffer<__nv_bfloat16> input16(rounded(a), 1), output16(rounded(before), 3);
        of_bfloat16[o].launch(input16.data(), output16.data(), static_cast<int64_t>(n));
        expect_same(widened(output16.to_host()), through_bfloat16(output.to_host()));
      });
    }
}

TEST(Elementwise, ScaleByRoundsToBfloat16) {
  const std::vector<float> x = random_floats(1000, -8, 8);
  in_both_forms([&] {
    const DeviceBuffer<float> input(x), factor(1, 0.37f), output(x.size(), kNaN);
    const DeviceBuffer<__nv_bfloat16> output16(rounded(x));
    scale_by(input.data(), factor.data(), output.data(), 1000, nullptr);
    scale_by(input.data(), factor.data(), output16.data(), 1000, nullptr);
    expect_same(widened(output16.to_host()), through_bfloat16(output.to_host()));
  });
}

}  // namespace
}  // namespace lockstep::kernels
