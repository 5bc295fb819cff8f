// The two forms of a kernel, and inputs and comparisons for kernel tests. A test runs its body in both forms:
// one thread per block (what a CPU does), and the GPU's block size (fibers on a CPU). On a GPU both are the
// latter.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/launch.cuh"

namespace lockstep::test {

inline constexpr uint32_t kSeed = 20240117;

// Calls body() once a form.
template <typename Body>
void in_both_forms(Body body) {
  const bool before = kernels::at_gpu_block_size;
  for (const bool gpu_form : {false, true}) {
    SCOPED_TRACE(gpu_form ? "at the GPU's block size" : "one thread per block");
    kernels::at_gpu_block_size = gpu_form;
    body();
  }
  kernels::at_gpu_block_size = before;
}

// Both forms' results of run(), to compare them with each other.
template <typename Run>
auto results_of_both_forms(Run run) {
  std::vector<decltype(run())> results;
  in_both_forms([&] { results.push_back(run()); });
  return results;
}

inline std::vector<float> random_floats(size_t n, float low, float high, uint32_t salt = 0) {
  std::mt19937 generator(kSeed + salt);
  std::uniform_real_distribution<float> value(low, high);
  std::vector<float> values(n);
  for (float& v : values) v = value(generator);
  return values;
}

// Small integers: float sums of fewer than 2^24 / magnitude of them are exact in every order.
inline std::vector<float> random_integers(size_t n, int magnitude, uint32_t salt = 0) {
  std::mt19937 generator(kSeed + salt);
  std::uniform_int_distribution<int> value(-magnitude, magnitude);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(value(generator));
  return values;
}

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Random values, and among them, where there is room, what is special.
inline std::vector<float> values_with_specials(size_t n, uint32_t salt) {
  std::vector<float> values = random_floats(n, -8, 8, salt);
  const float specials[] = {kNaN,      kInfinity,  -kInfinity, -0.0f, 0.0f,
                            0x1p-149f, -0x1p-140f, 0x1p-126f,  100,   -100};
  if (n >= 31)
    for (size_t i = 0; i < std::size(specials); ++i) values[3 * i] = specials[i];
  return values;
}

inline constexpr double kUnit = 0x1p-24;  // half a unit in the last place of 1: one rounding's relative error

// `want` is rounded to float first; NaN matches NaN, an infinity only itself. Results below the normal
// numbers may be off by 4 of their steps.
inline void expect_near(float got, double want, double tolerance, const std::string& what) {
  const float rounded = static_cast<float>(want);
  if (std::isnan(rounded)) {
    EXPECT_TRUE(std::isnan(got)) << what << ": got " << got << ", want NaN";
  } else if (std::isinf(rounded)) {
    EXPECT_EQ(got, rounded) << what;
  } else {
    EXPECT_LE(std::fabs(got - want), tolerance + 4 * 0x1p-149)
        << what << ": got " << got << ", want " << want;
    EXPECT_FALSE(std::isnan(got)) << what << ": got NaN, want " << want;
  }
}

// The same bits, any NaN being as good as another.
inline void expect_same(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(got[i], want[i]) << "element " << i;
  }
}

}  // namespace lockstep::test
