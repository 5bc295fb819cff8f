// Philox against the known answers of Random123, and the fills against their definition and their moments.
#include "kernels/random.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/philox.cuh"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

// The three vectors for philox4x32 with 10 rounds in Random123's kat_vectors.
TEST(Philox, GivesTheKnownAnswers) {
  struct Answer {
    PhiloxBlock counter;
    uint32_t key[2];
    std::array<uint32_t, 4> want;
  };
  const Answer answers[] = {
      {{{0, 0, 0, 0}}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Answer& answer : answers) {
    const PhiloxBlock got = philox(answer.counter, answer.key[0], answer.key[1]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], answer.want[i]) << "word " << i;
  }
}

constexpr uint64_t kFillSeed = 0x0123456789abcdefu;
constexpr uint64_t kSequence = 0xfedcba9876543210u;

std::vector<float> uniform(int64_t n, float low, float high, uint64_t seed = kFillSeed,
                           uint64_t sequence = kSequence) {
  const DeviceBuffer<float> x(std::vector<float>(n, kNaN), 1);
  random_uniform(x.data(), n, low, high, seed, sequence, nullptr);
  return x.to_host();
}

std::vector<float> normal(int64_t n, float mean, float stddev) {
  const DeviceBuffer<float> x(std::vector<float>(n, kNaN), 3);
  random_normal(x.data(), n, mean, stddev, kFillSeed, kSequence, nullptr);
  return x.to_host();
}

uint32_t word(int64_t i) {
  return philox(kFillSeed, kSequence, static_cast<uint64_t>(i / 4)).word[i % 4];
}

TEST(RandomUniform, IsTheTopOfEachWordOnTheInterval) {
  for (const int64_t n : {0, 1, 31, 32, 33, 1000, 100003}) {
    SCOPED_TRACE("n " + std::to_string(n));
    const auto results = results_of_both_forms([&] { return uniform(n, -0.5f, 2.5f); });
    for (int64_t i = 0; i < n; ++i) {
      // Bit for bit, on every machine: product and sum are exact in a double, and rounded once.
      const double exact = -0.5 + 3.0 * (word(i) >> 8) * 0x1p-24;
      ASSERT_EQ(results[0][i], std::min(static_cast<float>(exact), std::nextafterf(2.5f, 0)))
          << "element " << i;
    }
    expect_same(results[0], results[1]);
  }
}

TEST(RandomUniform, DependsOnSeedAndSequenceAndNeverReachesHigh) {
  const std::vector<float> x = uniform(1000, 0, 1);
  EXPECT_NE(x, uniform(1000, 0, 1, kFillSeed + 1));
  EXPECT_NE(x, uniform(1000, 0, 1, kFillSeed + (uint64_t{1} << 32)));
  EXPECT_NE(x, uniform(1000, 0, 1, kFillSeed, kSequence + 1));
  EXPECT_NE(x, uniform(1000, 0, 1, kFillSeed, kSequence + (uint64_t{1} << 32)));
  // Between 2^24 and 2^24 + 2 the sum rounds up to high in half of all cases if nobody looks.
  for (const float v : uniform(1000, 16777216.0f, 16777218.0f)) ASSERT_EQ(v, 16777216.0f);
  for (const float v : uniform(10, 3, 3)) ASSERT_EQ(v, 3.0f);
}

TEST(RandomNormal, IsBoxMullerOfPairsOfWords) {
  for (const int64_t n : {0, 1, 31, 32, 33, 1000, 100003}) {
    SCOPED_TRACE("n " + std::to_string(n));
    const auto results = results_of_both_forms([&] { return normal(n, 0.25f, 2.0f); });
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t first = i - i % 2;
      const double radius = std::sqrt(-2 * std::log(((word(first) >> 8) + 1) * 0x1p-24));
      const double angle = 2 * M_PI * (word(first + 1) >> 8) * 0x1p-24;
      const double want = 0.25 + 2.0 * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
      // The angle (up to 8) is rounded twice, cosine, root, logarithm and products some six times more.
      const double tolerance = (2 * 8 + 6) * kUnit * 2.0 * radius + kUnit * (0.25 + std::fabs(want));
      for (const auto& got : results) expect_near(got[i], want, tolerance, "element " + std::to_string(i));
      sum += results[0][i];
      squares += (results[0][i] - 0.25) * (results[0][i] - 0.25);
      if (HasFailure()) return;
    }
    if (n < 100000) continue;
    // Five standard errors: of the mean, sigma / sqrt(n); of the variance, sigma^2 sqrt(2 / n).
    EXPECT_NEAR(sum / n, 0.25, 5 * 2.0 / std::sqrt(n));
    EXPECT_NEAR(squares / n, 4.0, 5 * 4.0 * std::sqrt(2.0 / n));
  }
}

TEST(Dropout, KeepsAndScalesTheElementsWhoseWordIsHighEnough) {
  constexpr float kProbability = 0.3f;
  for (const int64_t n : {0, 1, 3, 31, 32, 33, 100003}) {
    SCOPED_TRACE("n " + std::to_string(n));
    const std::vector<float> x = random_floats(static_cast<size_t>(n), 1, 2);
    in_both_forms([&] {
      const DeviceBuffer<float> input(x, 1), output(std::vector<float>(static_cast<size_t>(n), kNaN), 3);
      dropout(input.data(), output.data(), n, kProbability, kFillSeed, kSequence, nullptr);
      const std::vector<float> got = output.to_host();
      int64_t dropped = 0;
      for (int64_t i = 0; i < n; ++i) {
        const bool keep = word(i) * 0x1p-32 >= static_cast<double>(kProbability);
        dropped += !keep;
        // 1 - p, its quotient and the product are rounded.
        expect_near(got[i], keep ? x[i] / (1 - static_cast<double>(kProbability)) : 0.0, 3 * kUnit * 3,
                    "element " + std::to_string(i));
        if (HasFailure()) return;
      }
      // Five standard errors of a share.
      if (n > 1000) {
        EXPECT_NEAR(static_cast<double>(dropped) / n, 0.3, 5 * std::sqrt(0.3 * 0.7 / n));
      }
    });
  }
}

TEST(Dropout, OfProbabilityZeroKeepsEverything) {
  const std::vector<float> x = random_floats(1000, -1, 1);
  const DeviceBuffer<float> values(x, 1);
  dropout(values.data(), values.data(), 1000, 0.0f, kFillSeed, kSequence, nullptr);
  expect_same(values.to_host(), x);
}

}  // namespace
}  // namespace lockstep::kernels
