// What is NaN or infinite is found wherever it lies, and nothing else is.
#include "kernels/finite.h"

#include <cfloat>

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

int32_t count(const std::vector<float>& x, size_t offset = 0) {
  const DeviceBuffer<float> values(x, offset);
  const DeviceBuffer<int32_t> result(1, 7);
  count_not_finite(values.data(), static_cast<int64_t>(x.size()), result.data(), nullptr);
  return result.to_host()[0] - 7;
}

TEST(CountNotFinite, CountsEachOneOfManyAndNothingElse) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const size_t n : {0, 1, 31, 33, 1000, 16383, 16384, 16385, 100003})
    for (const size_t offset : {0, 1, 3}) {
      std::vector<float> x = random_floats(n, -1, 1);
      if (n > 0) x[n / 3] = FLT_MAX;
      if (n > 9) {
        x[1] = -FLT_MAX;
        x[2] = FLT_MIN / 4;  // below the normal numbers
        x[3] = -0.0f;
      }
      in_both_forms([&] { EXPECT_EQ(count(x, offset), 0) << n; });
      int32_t want = 0;
      for (size_t i = 0; i < n; i += 1 + i) {  // 0, 1, 3, 7, ...
        const float bad[] = {kNaN, -kNaN, kInfinity, -kInfinity};
        x[i] = bad[want++ % 4];
      }
      if (n > 0 && std::isfinite(x[n - 1])) {
        x[n - 1] = kInfinity;
        ++want;
      }
      in_both_forms([&] { EXPECT_EQ(count(x, offset), want) << n; });
    }
}

int32_t first_row(const std::vector<float>& logits, int64_t rows, int classes, int32_t before = 1 << 30) {
  const DeviceBuffer<float> values(logits, 1);
  const DeviceBuffer<int32_t> row(1, before);
  first_row_without_largest(values.data(), rows, classes, 1000, row.data(), nullptr);
  return row.to_host()[0];
}

TEST(FirstRowWithoutLargest, IsTheSmallestThatNoClassCanBeReadFrom) {
  constexpr int64_t kRows = 600;
  constexpr int kClasses = 10;
  in_both_forms([&] {
    std::vector<float> logits(kRows * kClasses, 0.5f);
    EXPECT_EQ(first_row(logits, kRows, kClasses), 1 << 30);
    logits[3] = -kInfinity;  // a class that cannot be
    EXPECT_EQ(first_row(logits, kRows, kClasses), 1 << 30);
    logits[599 * kClasses + 9] = kNaN;
    EXPECT_EQ(first_row(logits, kRows, kClasses), 1599);
    logits[300 * kClasses] = kNaN;
    EXPECT_EQ(first_row(logits, kRows, kClasses), 1300);
    logits[299 * kClasses + 5] = kInfinity;
    EXPECT_EQ(first_row(logits, kRows, kClasses), 1299);
    for (int c = 0; c < kClasses; ++c) logits[c] = -kInfinity;
    EXPECT_EQ(first_row(logits, kRows, kClasses), 1000);
    EXPECT_EQ(first_row(logits, kRows, kClasses, 17), 17) << "an earlier batch's";
    EXPECT_EQ(first_row({}, 0, kClasses), 1 << 30);
  });
}

}  // namespace
}  // namespace lockstep::kernels
