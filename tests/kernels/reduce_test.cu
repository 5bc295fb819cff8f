// The sum of an array: exact where the inputs are small integers, and as good as its partial sums where not.
#include "kernels/reduce.h"

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/test_scratch.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

float sum_of(const std::vector<float>& x, float factor, size_t offset) {
  const DeviceBuffer<float> input(x, offset), result(1, kNaN);
  const auto n = static_cast<int64_t>(x.size());
  const TestScratch scratch(reduce_sum_workspace_bytes(n));
  reduce_sum(input.data(), n, factor, result.data(), scratch, nullptr);
  scratch.check();
  return result.to_host()[0];
}

TEST(ReduceSum, TakesEveryElementOnce) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const size_t n : {0, 1, 31, 32, 33, 63, 64, 65, 1000, 1023, 1024, 1025, 1000003})
    for (const size_t offset : {0, 1, 3}) {
      SCOPED_TRACE("n " + std::to_string(n) + " offset " + std::to_string(offset));
      const std::vector<float> x = random_integers(n, 8);  // sums stay below 2^23: exact
      int64_t want = 0;
      for (const float v : x) want += static_cast<int64_t>(v);
      in_both_forms([&] { EXPECT_EQ(sum_of(x, 0.5f, offset), static_cast<float>(want) * 0.5f); });
    }
}

TEST(ReduceSum, RoundsNoMoreThanItsPartialSums) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const size_t n = 100003;
  const std::vector<float> x = random_floats(n, 0, 1);
  double want = 0;
  for (const float v : x) want += v;
  // 64 partial sums or more, all terms positive: at most n / 64 roundings on a path, and a tree of 6 levels.
  const double tolerance = (n / 64.0 + 6) * kUnit * want;
  in_both_forms([&] { expect_near(sum_of(x, 1, 0), want, tolerance, "sum"); });
}

TEST(ReduceSum, PassesOnNaN) {
  std::vector<float> x(1000, 1.0f);
  x[777] = kNaN;
  in_both_forms([&] { EXPECT_TRUE(std::isnan(sum_of(x, 1, 0))); });
}

}  // namespace
}  // namespace lockstep::kernels
