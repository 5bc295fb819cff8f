// Pooling against plain loops. The inputs are small integers (many ties, exact sums), so that maxima, their
// positions and sums are compared for equality; only an average's factor rounds.
#include "kernels/pool.h"

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

std::string to_string(const Pool2dShape& s) {
  return "[" + std::to_string(s.batch) + ", " + std::to_string(s.height) + ", " + std::to_string(s.width) +
         ", " + std::to_string(s.channels) + "] kernel " + std::to_string(s.kernel) + " stride " +
         std::to_string(s.stride) + " padding " + std::to_string(s.padding);
}

std::vector<Pool2dShape> shapes() {
  std::vector<Pool2dShape> all;
  struct Window {
    int kernel, stride, padding;
  };
  const Window windows[] = {{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {2, 1, 0},
                            {3, 3, 0}, {2, 3, 0}, {5, 2, 2}, {2, 2, 1}};
  for (const auto [kernel, stride, padding] : windows) {
    for (const int channels : {1, 3, 4, 5, 6, 7, 8, 10, 16, 20, 33})
      all.push_back({2, 7, 6, channels, kernel, stride, padding});
    for (const int channels : {1, 6, 16}) all.push_back({3, 5, 9, channels, kernel, stride, padding});
    all.push_back({0, 6, 6, 6, kernel, stride, padding});
  }
  all.push_back({1, 2, 2, 6, 2, 2, 0});  // one output
  all.push_back({1, 3, 3, 6, 2, 2, 0});  // and inputs that no window covers
  all.push_back({2, 1, 1, 4, 1, 1, 0});
  all.push_back({1, 16, 16, 3, 16, 16, 0});  // the largest window that a position fits into a byte for
  all.push_back({9, 24, 24, 6, 2, 2, 0});
  all.push_back({9, 8, 8, 16, 2, 2, 0});
  return all;
}

// Calls visit(output index, input index, position in the window) for every input of every window.
template <typename Visit>
void for_each_pair(const Pool2dShape& s, Visit visit) {
  size_t out = 0;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int oh = 0; oh < s.out_height(); ++oh)
      for (int ow = 0; ow < s.out_width(); ++ow)
        for (int c = 0; c < s.channels; ++c, ++out)
          for (int r = 0; r < s.kernel; ++r)
            for (int q = 0; q < s.kernel; ++q) {
              const int h = oh * s.stride - s.padding + r, w = ow * s.stride - s.padding + q;
              if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
              visit(out, static_cast<size_t>(((n * s.height + h) * s.width + w) * s.channels + c),
                    static_cast<uint8_t>(r * s.kernel + q));
            }
}

struct MaxPooled {
  std::vector<float> y;
  std::vector<uint8_t> argmax;
};

MaxPooled max_pool_oracle(const Pool2dShape& s, const std::vector<float>& x) {
  MaxPooled result{std::vector<float>(s.output_size(), -kInfinity), std::vector<uint8_t>(s.output_size())};
  std::vector<bool> seen(s.output_size());
  for_each_pair(s, [&](size_t out, size_t in, uint8_t position) {
    if (!seen[out] || x[in] > result.y[out] || std::isnan(x[in])) {
      seen[out] = true;
      result.y[out] = x[in];
      result.argmax[out] = position;
    }
  });
  return result;
}

TEST(MaxPool2d, FindsTheFirstLargestOfEachWindow) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const Pool2dShape& s : shapes())
    for (const bool specials : {false, true}) {
      SCOPED_TRACE(to_string(s));
      std::vector<float> x = random_integers(s.input_size(), 3);
      for (size_t i = 0; specials && i < x.size(); ++i) {
        if (i % 3 != 0) x[i] = -kInfinity;
        if (i % 17 == 0) x[i] = kNaN;
      }
      const MaxPooled want = max_pool_oracle(s, x);
      in_both_forms([&] {
        const DeviceBuffer<float> input(x, 1), y(std::vector<float>(s.output_size(), 77.0f), 3);
        const DeviceBuffer<uint8_t> argmax(std::vector<uint8_t>(s.output_size(), 255), 1);
        max_pool2d_forward(s, input.data(), y.data(), argmax.data(), nullptr);
        expect_same(y.to_host(), want.y);
        EXPECT_EQ(argmax.to_host(), want.argmax);
      });
      if (HasFailure()) return;
    }
}

TEST(MaxPool2d, SendsEachGradientToItsMaximum) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const Pool2dShape& s : shapes()) {
    SCOPED_TRACE(to_string(s));
    const MaxPooled forward = max_pool_oracle(s, random_integers(s.input_size(), 3));
    const std::vector<float> dy = random_integers(s.output_size(), 8, 1);
    std::vector<float> want(s.input_size(), 0.0f);
    for_each_pair(s, [&](size_t out, size_t in, uint8_t position) {
      if (forward.argmax[out] == position) want[in] += dy[out];
    });
    in_both_forms([&] {
      const DeviceBuffer<float> gradient(dy, 1), dx(std::vector<float>(s.input_size(), kNaN), 3);
      const DeviceBuffer<uint8_t> argmax(forward.argmax, 3);
      max_pool2d_backward(s, gradient.data(), argmax.data(), dx.data(), nullptr);
      expect_same(dx.to_host(), want);
    });
    if (HasFailure()) return;
  }
}

// The sums are exact; 1 / kernel^2 and the product with it round once each.
constexpr double kAverageTolerance = 2 * kUnit;

TEST(AvgPool2d, AveragesEachWindowWithPaddingAsZeros) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const Pool2dShape& s : shapes()) {
    SCOPED_TRACE(to_string(s));
    const std::vector<float> x = random_integers(s.input_size(), 8);
    std::vector<double> sum(s.output_size(), 0.0);
    for_each_pair(s, [&](size_t out, size_t in, uint8_t) { sum[out] += x[in]; });
    const auto results = results_of_both_forms([&] {
      const DeviceBuffer<float> input(x, 1), y(std::vector<float>(s.output_size(), kNaN), 3);
      avg_pool2d_forward(s, input.data(), y.data(), nullptr);
      return y.to_host();
    });
    for (size_t i = 0; i < sum.size(); ++i) {
      const double want = sum[i] / (s.kernel * s.kernel);
      expect_near(results[0][i], want, std::fabs(want) * kAverageTolerance, "output " + std::to_string(i));
    }
    expect_same(results[0], results[1]);
    if (HasFailure()) return;
  }
}

TEST(AvgPool2d, SpreadsEachGradientOverItsWindow) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const Pool2dShape& s : shapes()) {
    SCOPED_TRACE(to_string(s));
    const std::vector<float> dy = random_integers(s.output_size(), 8);
    std::vector<double> sum(s.input_size(), 0.0);
    for_each_pair(s, [&](size_t out, size_t in, uint8_t) { sum[in] += dy[out]; });
    const auto results = results_of_both_forms([&] {
      const DeviceBuffer<float> gradient(dy, 3), dx(std::vector<float>(s.input_size(), kNaN), 1);
      avg_pool2d_backward(s, gradient.data(), dx.data(), nullptr);
      return dx.to_host();
    });
    for (size_t i = 0; i < sum.size(); ++i) {
      const double want = sum[i] / (s.kernel * s.kernel);
      expect_near(results[0][i], want, std::fabs(want) * kAverageTolerance, "input " + std::to_string(i));
    }
    expect_same(results[0], results[1]);
    if (HasFailure()) return;
  }
}

TEST(Pool2d, RefusesAWindowThatDoesNotFit) {
  const DeviceBuffer<float> x(16, 0.0f), y(16, 0.0f);
  for (const Pool2dShape& s : {Pool2dShape{1, 1, 4, 1, 2, 2, 0}, Pool2dShape{1, 4, 4, 1, 2, 2, 2},
                               Pool2dShape{1, 4, 4, 1, 2, 0, 0}, Pool2dShape{1, 40, 40, 1, 17, 17, 0}})
    EXPECT_THROW(max_pool2d_forward(s, x.data(), y.data(), nullptr, nullptr), Error) << to_string(s);
}

}  // namespace
}  // namespace lockstep::kernels
