// Matrix products against a plain loop in double: both paths, every transposition, sizes around the tile.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/math_context.h"

namespace lockstep::kernels {
namespace {

using test::DeviceBuffer;
using test::TestMath;

std::vector<float> random_values(size_t size, std::mt19937& generator) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(size);
  for (float& value : values) value = uniform(generator);
  return values;
}

struct Size {
  int64_t m, n, k;
};

void PrintTo(const Size& s, std::ostream* out) {
  *out << s.m << " x " << s.n << " x " << s.k;
}

class Matmul : public testing::TestWithParam<std::tuple<Math, Size>> {};

void check(Math math, const Size& size, bool transpose_a, bool transpose_b, float beta, unsigned seed) {
  SCOPED_TRACE("seed " + std::to_string(seed) + (transpose_a ? ", a'" : ", a") +
               (transpose_b ? " b'" : " b") + ", beta " + std::to_string(beta));
  const auto [m, n, k] = size;
  std::mt19937 generator(seed);
  const std::vector<float> a = random_values(static_cast<size_t>(m * k), generator);
  const std::vector<float> b = random_values(static_cast<size_t>(k * n), generator);
  std::vector<float> c = random_values(static_cast<size_t>(m * n), generator);
  std::vector<double> wanted(c.size());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = beta == 0.0f ? 0.0 : double{beta} * c[i * n + j];
      for (int64_t l = 0; l < k; ++l)
        sum +=
            double{transpose_a ? a[l * m + i] : a[i * k + l]} * (transpose_b ? b[j * k + l] : b[l * n + j]);
      wanted[i * n + j] = sum;
    }
  if (beta == 0.0f) c.assign(c.size(), std::numeric_limits<float>::quiet_NaN());

  const TestMath context(math);
  const DeviceBuffer<float> a_device(a), b_device(b), c_device(c);
  matmul(context, transpose_a, transpose_b, m, n, k, a_device.data(), b_device.data(), beta, c_device.data());
  const std::vector<float> got = c_device.to_host();
  // Each of the k + 1 sums and products of values up to 1 rounds by at most half an ulp of a partial sum,
  // which stays below k + 1; in practice errors grow with the square root, so this leaves ample room.
  const double tolerance = std::numeric_limits<float>::epsilon() * (static_cast<double>(k) + 2);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], tolerance) << "row " << i / n << ", column " << i % n;
}

TEST_P(Matmul, MatchesALoopInDouble) {
  const auto [math, size] = GetParam();
  unsigned seed = 1;
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const float beta : {0.0f, 1.0f, -0.5f}) check(math, size, transpose_a, transpose_b, beta, seed++);
}

INSTANTIATE_TEST_SUITE_P(, Matmul,
                         testing::Combine(testing::Values(Math::library, Math::own),
                                          testing::Values(Size{0, 5, 3}, Size{5, 0, 3}, Size{5, 3, 0},
                                                          Size{1, 1, 1}, Size{31, 33, 32}, Size{32, 32, 32},
                                                          Size{33, 31, 1}, Size{1, 65, 33}, Size{64, 64, 16},
                                                          Size{65, 1, 17}, Size{129, 70, 100})),
                         [](const testing::TestParamInfo<Matmul::ParamType>& test) {
                           const Size& s = std::get<1>(test.param);
                           return std::string(std::get<0>(test.param) == Math::own ? "own_" : "library_") +
                                  std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
                         });

TEST(MatmulErrors, ANegativeSizeIsRefused) {
  const TestMath context(Math::own);
  EXPECT_THROW(matmul<float>(context, false, false, -1, 2, 3, nullptr, nullptr, 0.0f, nullptr), Error);
}

}  // namespace
}  // namespace lockstep::kernels
