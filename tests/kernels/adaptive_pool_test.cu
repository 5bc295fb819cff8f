// Adaptive average pooling against plain loops over PyTorch's definition of the windows: sizes that divide,
// that do not, larger outputs than inputs, and the global average.
#include "kernels/adaptive_pool.h"

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

std::string to_string(const AdaptivePool2dShape& s) {
  return std::to_string(s.batch) + " images " + std::to_string(s.height) + " x " + std::to_string(s.width) +
         " x " + std::to_string(s.channels) + " to " + std::to_string(s.out_height) + " x " +
         std::to_string(s.out_width);
}

std::vector<AdaptivePool2dShape> shapes() {
  std::vector<AdaptivePool2dShape> all;
  for (const int channels : {1, 3, 4, 7, 8, 16, 17, 40}) {
    all.push_back({3, 4, 5, channels, 1, 1});
    all.push_back({2, 7, 6, channels, 3, 4});
  }
  all.push_back({2, 6, 6, 5, 2, 3});
  all.push_back({1, 3, 2, 4, 5, 7});  // larger outputs
  all.push_back({2, 5, 1, 3, 5, 1});  // the same size
  all.push_back({0, 4, 4, 8, 1, 1});
  all.push_back({2, 1, 1, 512, 1, 1});
  all.push_back({1, 40, 33, 6, 1, 1});
  return all;
}

// Calls visit(output index, input index, inputs of that window) for every input of every window.
template <typename Visit>
void for_each_pair(const AdaptivePool2dShape& s, Visit visit) {
  const auto begin = [](int i, int in, int out) { return i * in / out; };
  const auto end = [](int i, int in, int out) {
    return static_cast<int>(std::ceil(static_cast<double>((i + 1) * in) / out));
  };
  size_t out = 0;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int oh = 0; oh < s.out_height; ++oh)
      for (int ow = 0; ow < s.out_width; ++ow)
        for (int c = 0; c < s.channels; ++c, ++out) {
          const int top = begin(oh, s.height, s.out_height), bottom = end(oh, s.height, s.out_height);
          const int left = begin(ow, s.width, s.out_width), right = end(ow, s.width, s.out_width);
          for (int h = top; h < bottom; ++h)
            for (int w = left; w < right; ++w)
              visit(out, static_cast<size_t>(((n * s.height + h) * s.width + w) * s.channels + c),
                    (bottom - top) * (right - left));
        }
}

size_t input_size(const AdaptivePool2dShape& s) {
  return static_cast<size_t>(s.batch * s.height * s.width * s.channels);
}
size_t output_size(const AdaptivePool2dShape& s) {
  return static_cast<size_t>(s.batch * s.out_height * s.out_width * s.channels);
}

TEST(AdaptiveAvgPool2d, AveragesEveryWindow) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const AdaptivePool2dShape& s : shapes()) {
    SCOPED_TRACE(to_string(s));
    const std::vector<float> x = random_integers(input_size(s), 8);
    std::vector<double> want(output_size(s), 0.0);
    for_each_pair(
        s, [&](size_t out, size_t in, int window) { want[out] += static_cast<double>(x[in]) / window; });
    in_both_forms([&] {
      const DeviceBuffer<float> input(x, 3), y(std::vector<float>(output_size(s), kNaN), 1);
      adaptive_avg_pool2d_forward(s, input.data(), y.data(), nullptr);
      const std::vector<float> got = y.to_host();
      // The sum of integers is exact; the factor and the product round.
      for (size_t i = 0; i < got.size(); ++i)
        expect_near(got[i], want[i], 2 * kUnit * std::fabs(want[i]) + 1e-12, "output " + std::to_string(i));
    });
    if (HasFailure()) return;
  }
}

TEST(AdaptiveAvgPool2dBackward, SpreadsEveryGradientOverItsWindow) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const AdaptivePool2dShape& s : shapes()) {
    SCOPED_TRACE(to_string(s));
    const std::vector<float> dy = random_integers(output_size(s), 8);
    std::vector<double> want(input_size(s), 0.0), size(input_size(s), 0.0);
    for_each_pair(s, [&](size_t out, size_t in, int window) {
      want[in] += static_cast<double>(dy[out]) / window;
      size[in] += std::fabs(static_cast<double>(dy[out])) / window;
    });
    in_both_forms([&] {
      const DeviceBuffer<float> gradient(dy, 1), dx(std::vector<float>(input_size(s), kNaN), 3);
      adaptive_avg_pool2d_backward(s, gradient.data(), dx.data(), nullptr);
      const std::vector<float> got = dx.to_host();
      // Each term rounds twice; at most 16 are added here.
      for (size_t i = 0; i < got.size(); ++i)
        expect_near(got[i], want[i], 18 * kUnit * size[i], "input " + std::to_string(i));
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep::kernels
