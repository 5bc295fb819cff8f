// Batch normalisation of a batch that lies in shards, against the functions for a batch that lies together.
#include <numeric>

#include "kernels/check.h"
#include "kernels/norm/batch_norm.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/test_scratch.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

// Shards' rows: below and beyond the rows of a chunk, some without any, one row in a shard, one shard alone.
const std::vector<std::vector<int64_t>> kShardings{{60, 61}, {0, 7, 0, 1, 300, 0}, {1, 1}, {129}, {0, 40}};
const std::vector<int> kChannels{1, 5, 33};

int64_t sum(const std::vector<int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

std::string to_string(const std::vector<int64_t>& rows, int channels) {
  std::string text = std::to_string(channels) + " channels, rows";
  for (const int64_t r : rows) text += " " + std::to_string(r);
  return text;
}

struct Statistics {
  std::vector<float> mean, inverse_stddev, running_mean, running_variance;
};

class StatisticsBuffers {
 public:
  explicit StatisticsBuffers(size_t channels)
      : mean(channels, kNaN), inverse(channels, kNaN), running_mean(channels, 2), running_var(channels, 3) {}
  Statistics to_host() const {
    return {mean.to_host(), inverse.to_host(), running_mean.to_host(), running_var.to_host()};
  }
  DeviceBuffer<float> mean, inverse, running_mean, running_var;
};

Statistics together(const BatchNormShape& s, const std::vector<float>& x) {
  const DeviceBuffer<float> input(x, 1);
  const TestScratch scratch(batch_norm_workspace_bytes(s));
  const StatisticsBuffers out(static_cast<size_t>(s.channels));
  batch_norm_statistics(s, {}, input.data(), out.mean.data(), out.inverse.data(), out.running_mean.data(),
                        out.running_var.data(), scratch, nullptr);
  return out.to_host();
}

Statistics in_shards(const std::vector<int64_t>& rows, int channels, const std::vector<float>& x) {
  const auto width = static_cast<size_t>(channels);
  const DeviceBuffer<float> input(x, 1), statistics(rows.size() * 2 * width, kNaN);
  int64_t first = 0;
  for (size_t s = 0; s < rows.size(); ++s) {
    const BatchNormShape shape{rows[s], channels};
    const TestScratch scratch(batch_norm_workspace_bytes(shape));
    batch_norm_shard_statistics(shape, input.data() + first * channels, statistics.data() + s * 2 * width,
                                scratch, nullptr);
    scratch.check();
    first += rows[s];
  }
  const StatisticsBuffers out(width);
  batch_norm_merge_statistics(channels, {}, rows, statistics.data(), out.mean.data(), out.inverse.data(),
                              out.running_mean.data(), out.running_var.data(), nullptr);
  statistics.to_host();
  return out.to_host();
}

// Values around 4 with a standard deviation of about 1. Both ways round every value a few dozen times at most
// (see `additions` in batch_norm_test.cu: up to 40 for 300 rows, and 4 more a merge): 64 roundings each.
constexpr double kRoundings = 128 * kUnit;

void expect_agreement(const std::vector<float>& got, const std::vector<float>& want, double size,
                      const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    expect_near(got[i], want[i], kRoundings * size, what + " " + std::to_string(i));
}

TEST(BatchNormShards, HaveTheStatisticsOfTheWholeBatch) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const auto& rows : kShardings)
    for (const int channels : kChannels) {
      SCOPED_TRACE(to_string(rows, channels));
      const BatchNormShape all{sum(rows), channels};
      const std::vector<float> x = random_floats(static_cast<size_t>(all.rows * channels), 2, 6);
      in_both_forms([&] {
        const Statistics want = together(all, x), got = in_shards(rows, channels, x);
        expect_agreement(got.mean, want.mean, 6, "mean");
        // The relative error of a variance: its own roundings, and twice an error of the mean in units of the
        // standard deviation. Of two rows alone that may be small, so it is measured.
        for (size_t c = 0; c < want.mean.size(); ++c) {
          const double inverse = want.inverse_stddev[c];
          const double relative = kRoundings * (1 + 2 * 6 * inverse);
          const std::string channel = " " + std::to_string(c);
          expect_near(got.inverse_stddev[c], inverse, inverse * relative, "1 / stddev" + channel);
          expect_near(got.running_variance[c], want.running_variance[c], 3 * relative,
                      "running variance" + channel);
        }
        expect_agreement(got.running_mean, want.running_mean, 3, "running mean");
      });
      if (HasFailure()) return;
    }
}

TEST(BatchNormShards, OfWhichOnlyOneHasRowsChangeNoBit) {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{150}, {0, 150, 0}}) {
    const std::vector<float> x = random_floats(150 * 37, 2, 6);
    in_both_forms([&] {
      const Statistics want = together({150, 37}, x), got = in_shards(rows, 37, x);
      EXPECT_EQ(got.mean, want.mean);
      EXPECT_EQ(got.inverse_stddev, want.inverse_stddev);
      EXPECT_EQ(got.running_mean, want.running_mean);
      EXPECT_EQ(got.running_variance, want.running_variance);
    });
  }
}

TEST(BatchNormShards, FarFromZeroKeepTheirDigits) {
  // As one sum of squares, 4096^2 would swallow them; the shards' means also lie apart, which the merge must
  // add to the variance.
  std::vector<float> x = random_floats(200 * 3, 4095, 4096);
  for (size_t i = x.size() / 2; i < x.size(); ++i) x[i] += 8;
  in_both_forms([&] {
    const Statistics got = in_shards({100, 100}, 3, x);
    for (size_t c = 0; c < 3; ++c) {
      double mean = 0, squares = 0;
      for (size_t i = c; i < x.size(); i += 3) mean += x[i] / 200.0;
      for (size_t i = c; i < x.size(); i += 3) squares += (x[i] - mean) * (x[i] - mean);
      const double want = 1 / std::sqrt(squares / 200 + 1e-5);
      // The means are off by a rounding at 4096, 2^-12, for distances of 4.
      expect_near(got.inverse_stddev[c], want, want * 2 * (0x1p-12 / 4 + kRoundings), std::to_string(c));
    }
  });
}

TEST(BatchNormShards, WithoutRowsLeaveEverythingAsItIs) {
  in_both_forms([&] {
    const Statistics got = in_shards({0, 0}, 5, {});
    EXPECT_EQ(got.running_mean, std::vector<float>(5, 2.0f));
    EXPECT_EQ(got.running_variance, std::vector<float>(5, 3.0f));
  });
}

TEST(BatchNormShards, OfOneRowTogetherAreRefused) {
  EXPECT_THROW(in_shards({0, 1}, 3, {1, 2, 3}), Error);
  EXPECT_THROW(in_shards(std::vector<int64_t>(65, 1), 1, std::vector<float>(65)), Error);
}

struct Gradients {
  std::vector<float> dx, daddend, dgamma, dbeta;
};

TEST(BatchNormShards, HaveTheGradientsOfTheWholeBatch) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const auto& rows : kShardings)
    for (const int channels : kChannels)
      for (const bool relu : {false, true}) {
        SCOPED_TRACE(to_string(rows, channels) + (relu ? ", ReLU" : ""));
        const BatchNormShape all{sum(rows), channels};
        const auto n = static_cast<size_t>(all.rows * channels), width = static_cast<size_t>(channels);
        const DeviceBuffer<float> x(random_floats(n, -2, 2, 1)), output(random_floats(n, -1, 1, 2)),
            dy(random_floats(n, -1, 1, 3)), mean(random_floats(width, -1, 1, 4)),
            inverse(random_floats(width, 0.5f, 2, 5)), gamma(random_floats(width, -2, 2, 6));
        const float* y = relu ? output.data() : nullptr;
        in_both_forms([&] {
          const TestScratch scratch(batch_norm_workspace_bytes(all));
          const DeviceBuffer<float> dx(n, kNaN), daddend(n, kNaN), dgamma(width, kNaN), dbeta(width, kNaN);
          batch_norm_backward(all, BatchNormMode::batch, x.data(), y, dy.data(), mean.data(), inverse.data(),
                              gamma.data(), dx.data(), daddend.data(), dgamma.data(), dbeta.data(), scratch,
                              nullptr);

          std::vector<float> dgamma_of_all(width, 0), dbeta_of_all(width, 0);
          int64_t first = 0;
          for (const int64_t count : rows) {
            const DeviceBuffer<float> shard_dgamma(width, kNaN), shard_dbeta(width, kNaN);
            const int64_t at = first * channels;
            batch_norm_gradient_sums({count, channels}, x.data() + at, relu ? y + at : nullptr,
                                     dy.data() + at, mean.data(), inverse.data(), shard_dgamma.data(),
                                     shard_dbeta.data(), scratch, nullptr);
            for (size_t c = 0; c < width; ++c) {
              dgamma_of_all[c] += shard_dgamma.to_host()[c];
              dbeta_of_all[c] += shard_dbeta.to_host()[c];
            }
            first += count;
          }
          // Sums of `rows` values of at most 1 and 6, whose partial sums round up to 64 times each way.
          const auto size = static_cast<double>(all.rows);
          expect_agreement(dgamma_of_all, dgamma.to_host(), 6 * size, "dgamma");
          expect_agreement(dbeta_of_all, dbeta.to_host(), size, "dbeta");

          const DeviceBuffer<float> sharded_dx(n, kNaN), sharded_daddend(n, kNaN),
              dgamma_sum(dgamma.to_host()), dbeta_sum(dbeta.to_host());
          first = 0;
          for (const int64_t count : rows) {
            const int64_t at = first * channels;
            batch_norm_input_gradient({count, channels}, BatchNormMode::batch, all.rows, x.data() + at,
                                      relu ? y + at : nullptr, dy.data() + at, mean.data(), inverse.data(),
                                      gamma.data(), dgamma_sum.data(), dbeta_sum.data(),
                                      sharded_dx.data() + at, sharded_daddend.data() + at, nullptr);
            first += count;
          }
          // From the same sums, each element is one expression.
          expect_same(sharded_dx.to_host(), dx.to_host());
          expect_same(sharded_daddend.to_host(), daddend.to_host());
        });
        if (HasFailure()) return;
      }
}

struct Running {
  std::vector<float> mean, variance;
};

Running combine(const std::vector<int64_t>& rows, int channels, const std::vector<float>& statistics) {
  const DeviceBuffer<float> input(statistics, 1), mean(static_cast<size_t>(channels), -7),
      variance(static_cast<size_t>(channels), -8);
  batch_norm_combine_running(channels, rows, input.data(), mean.data(), variance.data(), nullptr);
  return {mean.to_host(), variance.to_host()};
}

TEST(BatchNormRunningStatistics, CombineByTheRowsThatReplicasSaw) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const std::vector<int64_t> rows{3, 0, 500, 41};
  const int channels = 37;
  const std::vector<float> statistics = random_floats(rows.size() * 2 * channels, 0, 4);
  in_both_forms([&] {
    const Running got = combine(rows, channels, statistics);
    for (size_t c = 0; c < channels; ++c) {
      const auto mean_of = [&](size_t r) -> double { return statistics[r * 2 * channels + c]; };
      const auto variance_of = [&](size_t r) -> double { return statistics[(r * 2 + 1) * channels + c]; };
      double mean = 0, variance = 0;
      for (size_t r = 0; r < rows.size(); ++r) mean += rows[r] / 544.0 * mean_of(r);
      for (size_t r = 0; r < rows.size(); ++r)
        variance += rows[r] / 544.0 * (variance_of(r) + (mean_of(r) - mean) * (mean_of(r) - mean));
      // Three replicas, a handful of roundings each, of numbers of at most 4, and of 4 + 4^2.
      expect_near(got.mean[c], mean, 12 * kUnit * 4, "mean " + std::to_string(c));
      expect_near(got.variance[c], variance, 24 * kUnit * 20, "variance " + std::to_string(c));
    }
  });
}

TEST(BatchNormRunningStatistics, ThatAreEqualStayAsTheyAre) {
  const std::vector<float> one = random_floats(2 * 19, -1, 4);
  std::vector<float> all;
  for (int replica = 0; replica < 5; ++replica) all.insert(all.end(), one.begin(), one.end());
  in_both_forms([&] {
    const Running got = combine({7, 13, 1, 0, 64}, 19, all);
    EXPECT_EQ(got.mean, std::vector<float>(one.begin(), one.begin() + 19));
    EXPECT_EQ(got.variance, std::vector<float>(one.begin() + 19, one.end()));
  });
}

TEST(BatchNormRunningStatistics, WithoutRowsAreNotTouched) {
  in_both_forms([&] {
    const Running got = combine({0, 0}, 3, random_floats(12, 0, 1));
    EXPECT_EQ(got.mean, std::vector<float>(3, -7.0f));
    EXPECT_EQ(got.variance, std::vector<float>(3, -8.0f));
  });
  EXPECT_THROW(combine({4, -1}, 3, random_floats(12, 0, 1)), Error);
}

}  // namespace
}  // namespace lockstep::kernels
