// Clipping by norm against double; sums of squares of small integers are exact, so their norm is too.
#include "kernels/clip.h"

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/test_scratch.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

struct Clipped {
  std::vector<float> x;
  float norm;
};

Clipped clip(const std::vector<float>& x, float max_norm, float scale, size_t offset = 0) {
  const auto n = static_cast<int64_t>(x.size());
  const DeviceBuffer<float> data(x, offset), norm(1, kNaN);
  const TestScratch scratch(norm_for_clip_workspace_bytes(n));
  norm_for_clip(data.data(), n, scale, norm.data(), scratch, nullptr);
  scale_by_clip(data.data(), n, max_norm, norm.data(), nullptr);
  scratch.check();
  return {data.to_host(), norm.to_host()[0]};
}

TEST(ClipByNorm, ScalesWhatIsLongerAndLeavesWhatIsNot) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  constexpr float kScale = 0.125f;
  for (const size_t n : {0, 1, 31, 32, 33, 1000, 32767, 32768, 32769, 65536, 200003})
    for (const size_t offset : {0, 1}) {
      SCOPED_TRACE("n " + std::to_string(n) + " offset " + std::to_string(offset));
      const std::vector<float> x = random_integers(n, 8);  // the sum of squares stays below 2^24: exact
      double squares = 0;
      for (const float v : x) squares += double{v} * v;
      const double norm = kScale * std::sqrt(squares);
      in_both_forms([&] {
        const Clipped kept = clip(x, static_cast<float>(norm) + 1, kScale, offset);
        // A chunk's norm and the norm of those round once each; the product with a power of two does not.
        expect_near(kept.norm, norm, 2 * kUnit * norm, "norm");
        expect_same(kept.x, x);
        const auto limit = static_cast<float>(norm / 3);
        if (squares == 0) return;
        const Clipped cut = clip(x, limit, kScale, offset);
        EXPECT_EQ(cut.norm, kept.norm);
        // The norm, the sum with 1e-6, the quotient and the product round.
        for (size_t i = 0; i < n; ++i)
          expect_near(cut.x[i], x[i] * (limit / (norm + 1e-6)), 6 * kUnit * std::fabs(x[i]),
                      "element " + std::to_string(i));
      });
      if (HasFailure()) return;
    }
}

// Squares of these are no floats: infinite ones would clip every gradient to 0, vanished ones none.
TEST(ClipByNorm, OfVeryLongAndVeryShortGradientsIsRight) {
  for (const float size : {1e20f, 1e35f, 1e-20f, 1e-37f}) {
    SCOPED_TRACE(std::to_string(size));
    const std::vector<float> x(70000, size);
    const double norm = std::sqrt(70000.0) * double{size};
    in_both_forms([&] {
      const Clipped result = clip(x, 0.5f, 1);
      expect_near(result.norm, norm, 3 * kUnit * norm, "norm");
      const double factor = std::min(1.0, 0.5 / (norm + 1e-6));
      for (const size_t i : {0, 69999})
        expect_near(result.x[i], size * factor, 6 * kUnit * size * factor, "element " + std::to_string(i));
    });
  }
}

TEST(ClipByNorm, PassesOnNaN) {
  std::vector<float> x(70000, 1.0f);
  x[69999] = kNaN;
  in_both_forms([&] {
    const Clipped result = clip(x, 1, 1);
    EXPECT_TRUE(std::isnan(result.norm));
    EXPECT_TRUE(std::isnan(result.x[0]));
    EXPECT_TRUE(std::isnan(result.x[69999]));
  });
}

}  // namespace
}  // namespace lockstep::kernels
