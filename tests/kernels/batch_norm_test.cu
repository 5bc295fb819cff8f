// Batch normalisation against double. Rows below, at and beyond the eight partial sums and the rows of a
// slice; channels below, at and beyond a vector and a tile.
#include "kernels/norm/batch_norm.h"

#include <algorithm>

#include "kernels/check.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/test_scratch.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

std::string to_string(const BatchNormShape& s) {
  return std::to_string(s.rows) + " rows of " + std::to_string(s.channels);
}

std::vector<BatchNormShape> shapes() {
  std::vector<BatchNormShape> all;
  for (const int64_t rows : {2, 7, 8, 9, 127, 128, 129, 1300})
    for (const int channels : {1, 3, 4, 8, 17, 33}) all.push_back({rows, channels});
  for (const int channels : {15, 16, 31, 32, 63, 64, 65, 128, 130, 1032}) all.push_back({37, channels});
  all.push_back({300, 64});
  return all;
}

// How often a value is added on its way into a sum, at most: in its partial sum, over the eight of a slice,
// in the partial sums of at most 256 slices, and over the eight of those.
double additions(int64_t rows) {
  return static_cast<double>(rows) / 8 + 8 + 256 / 8 + 8;
}

// Of activations, in floats: with 0 a GPU's threads can move 16 bytes at once.
size_t offset_of(const BatchNormShape& s, size_t otherwise) {
  return s.channels % 8 == 0 ? 0 : otherwise;
}

float value_of(const std::vector<float>& values, int64_t row, int channel, int channels) {
  return values[static_cast<size_t>(row * channels + channel)];
}

struct Statistics {
  std::vector<float> mean, inverse_stddev, running_mean, running_variance;
};

Statistics statistics(const BatchNormShape& s, const std::vector<float>& x) {
  const size_t channels = static_cast<size_t>(s.channels);
  const DeviceBuffer<float> input(x, offset_of(s, 1)), mean(std::vector<float>(channels, kNaN), 3),
      inverse(std::vector<float>(channels, kNaN), 1), running_mean(std::vector<float>(channels, 2.0f), 1),
      running_variance(std::vector<float>(channels, 3.0f), 3);
  const TestScratch scratch(batch_norm_workspace_bytes(s));
  batch_norm_statistics(s, {}, input.data(), mean.data(), inverse.data(), running_mean.data(),
                        running_variance.data(), scratch, nullptr);
  scratch.check();
  return {mean.to_host(), inverse.to_host(), running_mean.to_host(), running_variance.to_host()};
}

// The statistics of x around `offset`, with standard deviation 1 or so.
void expect_statistics(const BatchNormShape& s, float offset) {
  SCOPED_TRACE(to_string(s) + " around " + std::to_string(offset));
  const std::vector<float> x =
      random_floats(static_cast<size_t>(s.rows * s.channels), offset - 2, offset + 2);
  in_both_forms([&] {
    const Statistics got = statistics(s, x);
    for (int c = 0; c < s.channels; ++c) {
      const auto n = static_cast<double>(s.rows);
      double mean = 0, squares = 0;
      for (int64_t r = 0; r < s.rows; ++r) mean += value_of(x, r, c, s.channels) / n;
      for (int64_t r = 0; r < s.rows; ++r) squares += std::pow(value_of(x, r, c, s.channels) - mean, 2);
      const double variance = squares / n;
      // Every addition, the factor and its product round a number as large as the largest x. What a slice's
      // mean is off, times how far slices' means lie apart, is missing from the sum of squares; they are
      // apart by less than a standard deviation.
      const double mean_error = (additions(s.rows) + 4) * kUnit * (std::fabs(offset) + 2);
      const double relative = (additions(s.rows) + 6) * kUnit + 2 * mean_error / std::sqrt(variance) +
                              mean_error * mean_error / variance;
      const std::string channel = " of channel " + std::to_string(c);
      expect_near(got.mean[c], mean, mean_error, "mean" + channel);
      const double inverse = 1 / std::sqrt(variance + 1e-5);
      expect_near(got.inverse_stddev[c], inverse, inverse * (relative + 3 * kUnit), "1 / stddev" + channel);
      expect_near(got.running_mean[c], 0.9 * 2 + 0.1 * mean,
                  0.1 * mean_error + 4 * kUnit * (2 + 0.1 * std::fabs(mean)), "running mean" + channel);
      const double unbiased = squares / (n - 1);
      expect_near(got.running_variance[c], 0.9 * 3 + 0.1 * unbiased,
                  0.1 * unbiased * relative + 4 * kUnit * (3 + unbiased), "running variance" + channel);
    }
  });
}

TEST(BatchNormStatistics, AgreeWithDouble) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const BatchNormShape& s : shapes()) {
    expect_statistics(s, 0.25f);
    if (HasFailure()) return;
  }
}

// The difference of two sums of squares would lose all digits here: at 4096, floats are 2^-11 apart, their
// squares 2.
TEST(BatchNormStatistics, KeepTheirDigitsFarFromZero) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const BatchNormShape& s : {BatchNormShape{300, 5}, BatchNormShape{1300, 33}})
    expect_statistics(s, 4096.0f);
}

TEST(BatchNormStatistics, OfNoRowsLeaveEverythingAsItIs) {
  in_both_forms([&] {
    const Statistics got = statistics({0, 5}, {});
    EXPECT_EQ(got.running_mean, std::vector<float>(5, 2.0f));
    EXPECT_EQ(got.running_variance, std::vector<float>(5, 3.0f));
  });
}

TEST(BatchNormStatistics, OfOneRowAreRefused) {
  EXPECT_THROW(statistics({1, 3}, {1, 2, 3}), Error);
}

TEST(BatchNormStatistics, ANanStaysInItsChannel) {
  std::vector<float> x = random_floats(200 * 20, -1, 1);
  x[150 * 20 + 7] = kNaN;
  in_both_forms([&] {
    const Statistics got = statistics({200, 20}, x);
    for (size_t c = 0; c < 20; ++c) {
      EXPECT_EQ(std::isnan(got.mean[c]), c == 7) << c;
      EXPECT_EQ(std::isnan(got.inverse_stddev[c]), c == 7) << c;
    }
  });
}

TEST(BatchNormInverseStddev, AgreesWithDouble) {
  const std::vector<float> variance{0.0f, 1e-5f, 1.0f, 2.5f, 1e6f};
  in_both_forms([&] {
    const DeviceBuffer<float> input(variance, 1), output(std::vector<float>(5, kNaN), 3);
    batch_norm_inverse_stddev(input.data(), 1e-5f, 5, output.data(), nullptr);
    const std::vector<float> got = output.to_host();
    for (size_t c = 0; c < 5; ++c) {
      const double want = 1 / std::sqrt(variance[c] + static_cast<double>(1e-5f));
      expect_near(got[c], want, 4 * kUnit * want, "channel " + std::to_string(c));  // +, sqrt, 1 /
    }
  });
}

// What both directions are given.
struct Inputs {
  std::vector<float> x, mean, inverse, gamma, beta, addend, dy;
  explicit Inputs(const BatchNormShape& s) {
    const auto n = static_cast<size_t>(s.rows * s.channels), channels = static_cast<size_t>(s.channels);
    x = random_floats(n, -2, 2, 1);
    mean = random_floats(channels, -1, 1, 2);
    inverse = random_floats(channels, 0.5f, 2, 3);
    gamma = random_floats(channels, -2, 2, 4);
    beta = random_floats(channels, -1, 1, 5);
    addend = random_floats(n, -1, 1, 6);
    dy = random_floats(n, -1, 1, 7);
  }
};

TEST(BatchNormNormalise, AgreesWithDoubleWithAdditionAndReLU) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::vector<BatchNormShape> all = shapes();
  all.push_back({0, 5});
  all.push_back({1, 5});
  for (const BatchNormShape& s : all) {
    SCOPED_TRACE(to_string(s));
    const Inputs in(s);
    for (const bool add : {false, true})
      for (const bool relu : {false, true})
        in_both_forms([&] {
          const DeviceBuffer<float> x(in.x, offset_of(s, 1)), mean(in.mean, 3), inverse(in.inverse),
              gamma(in.gamma, 1), beta(in.beta, 1), addend(in.addend, offset_of(s, 3)),
              y(std::vector<float>(in.x.size(), kNaN), offset_of(s, 1));
          batch_norm_normalise(s, x.data(), mean.data(), inverse.data(), gamma.data(), beta.data(),
                               add ? addend.data() : nullptr, relu, y.data(), nullptr);
          const std::vector<float> got = y.to_host();
          for (size_t i = 0; i < got.size(); ++i) {
            const size_t c = i % static_cast<size_t>(s.channels);
            const double scaled = (static_cast<double>(in.x[i]) - in.mean[c]) *
                                  (static_cast<double>(in.inverse[c]) * in.gamma[c]);
            const double value = scaled + in.beta[c] + (add ? in.addend[i] : 0.0f);
            // Three roundings of the product, one of each addition; ReLU passes an error on or clips it.
            expect_near(got[i], relu ? std::max(value, 0.0) : value,
                        kUnit * (5 * std::fabs(scaled) + 2 * std::fabs(in.beta[c]) + 2),
                        "element " + std::to_string(i));
          }
        });
    if (HasFailure()) return;
  }
}

struct Gradients {
  std::vector<float> dx, daddend, dgamma, dbeta;
};

Gradients backward(const BatchNormShape& s, BatchNormMode mode, const Inputs& in,
                   const std::vector<float>* y) {
  const auto n = in.x.size(), channels = in.mean.size();
  const DeviceBuffer<float> x(in.x, offset_of(s, 1)), output(y ? *y : std::vector<float>(), offset_of(s, 3)),
      dy(in.dy, offset_of(s, 3)), mean(in.mean), inverse(in.inverse, 1), gamma(in.gamma, 3),
      dx(std::vector<float>(n, kNaN), offset_of(s, 1)), daddend(std::vector<float>(n, kNaN), offset_of(s, 3)),
      dgamma(std::vector<float>(channels, kNaN), 1), dbeta(std::vector<float>(channels, kNaN), 3);
  const TestScratch scratch(batch_norm_workspace_bytes(s));
  batch_norm_backward(s, mode, x.data(), y ? output.data() : nullptr, dy.data(), mean.data(), inverse.data(),
                      gamma.data(), dx.data(), daddend.data(), dgamma.data(), dbeta.data(), scratch, nullptr);
  scratch.check();
  return {dx.to_host(), daddend.to_host(), dgamma.to_host(), dbeta.to_host()};
}

void expect_gradients(const BatchNormShape& s, BatchNormMode mode, bool relu) {
  const Inputs in(s);
  std::vector<float> y;
  if (relu) y = random_floats(in.x.size(), -1, 1, 8);  // its sign decides, wherever it came from
  in_both_forms([&] {
    const Gradients got = backward(s, mode, in, relu ? &y : nullptr);
    const double sum_error = (additions(s.rows) + 4) * kUnit;
    for (int c = 0; c < s.channels; ++c) {
      const auto inverse = static_cast<double>(in.inverse[c]);
      double dbeta = 0, dgamma = 0, dbeta_size = 0, dgamma_size = 0;
      const auto gradient = [&](size_t i) {
        return relu && !(y[i] > 0) ? 0.0 : static_cast<double>(in.dy[i]);
      };
      const auto normalised = [&](size_t i) { return (static_cast<double>(in.x[i]) - in.mean[c]) * inverse; };
      for (size_t i = static_cast<size_t>(c); i < in.x.size(); i += static_cast<size_t>(s.channels)) {
        dbeta += gradient(i);
        dbeta_size += std::fabs(gradient(i));
        dgamma += gradient(i) * normalised(i);
        dgamma_size += std::fabs(gradient(i) * normalised(i));
      }
      expect_near(got.dbeta[c], dbeta, sum_error * dbeta_size, "dbeta " + std::to_string(c));
      expect_near(got.dgamma[c], dgamma, sum_error * dgamma_size, "dgamma " + std::to_string(c));
      const double n = mode == BatchNormMode::batch ? static_cast<double>(s.rows) : kInfinity;
      for (size_t i = static_cast<size_t>(c); i < in.x.size(); i += static_cast<size_t>(s.channels)) {
        const double terms =
            std::fabs(gradient(i)) + (dbeta_size + std::fabs(normalised(i)) * dgamma_size) / n;
        const double want = inverse * in.gamma[c] * (gradient(i) - (dbeta + normalised(i) * dgamma) / n);
        expect_near(got.dx[i], want, std::fabs(inverse * in.gamma[c]) * terms * (sum_error + 8 * kUnit),
                    "dx " + std::to_string(i));
        if (relu)
          EXPECT_EQ(got.daddend[i], static_cast<float>(gradient(i))) << "daddend " << i;
        else
          EXPECT_TRUE(std::isnan(got.daddend[i])) << "written without a ReLU";
      }
    }
  });
}

TEST(BatchNormBackward, AgreesWithDouble) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const BatchNormShape& s : shapes())
    for (const BatchNormMode mode : {BatchNormMode::batch, BatchNormMode::running})
      for (const bool relu : {false, true}) {
        SCOPED_TRACE(to_string(s) + (mode == BatchNormMode::batch ? ", batch" : ", running") +
                     (relu ? ", ReLU" : ""));
        expect_gradients(s, mode, relu);
        if (HasFailure()) return;
      }
}

TEST(BatchNormBackward, OfNoRowsIsZero) {
  const Inputs in({0, 5});
  in_both_forms([&] {
    const Gradients got = backward({0, 5}, BatchNormMode::batch, in, nullptr);
    EXPECT_EQ(got.dgamma, std::vector<float>(5, 0.0f));
    EXPECT_EQ(got.dbeta, std::vector<float>(5, 0.0f));
  });
}

}  // namespace
}  // namespace lockstep::kernels
