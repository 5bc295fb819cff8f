// Matrix products and convolutions of bfloat16 against the float32 ones of the same values, by the library
// and by our own kernels: sums are float32, so only the results' own rounding to bfloat16 comes on top.
#include <algorithm>
#include <iostream>
#include <string>

#include "kernels/conv/conv.h"
#include "kernels/conv/conv_paths.h"
#include "kernels/matmul.h"
#include "tests/bfloat16.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/math_context.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

// Sums of `terms` products of values up to 1, in two orders: 2^-24 a term and order. What is rounded to
// bfloat16 may move by 2^-8 of itself.
void expect_agreement(const std::vector<float>& got, const std::vector<float>& want, int64_t terms,
                      double rounding, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    expect_near(got[i], want[i], 2 * kUnit * static_cast<double>(terms) + rounding * std::fabs(want[i]),
                std::string(what) + " " + std::to_string(i));
}

TEST(MatMul, OfBfloat16SumsInFloat) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const int64_t m = 37, n = 10, k = 130;
  const std::vector<float> a = through_bfloat16(random_floats(m * k, -1, 1, 1));
  const std::vector<float> b = through_bfloat16(random_floats(k * n, -1, 1, 2));
  for (const Math math : {Math::library, Math::own})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const TestMath context(math);
        const DeviceBuffer<float> wide_a(a), wide_b(b), want(m * n, kNaN), got(m * n, kNaN);
        const DeviceBuffer<__nv_bfloat16> narrow_a(rounded(a), 1), narrow_b(rounded(b), 3);
        matmul(context, transpose_a, transpose_b, m, n, k, wide_a.data(), wide_b.data(), 0.0f, want.data());
        matmul(context, transpose_a, transpose_b, m, n, k, narrow_a.data(), narrow_b.data(), 0.0f,
               got.data());
        expect_agreement(got.to_host(), want.to_host(), k, 0, "element");
      }
}

const Conv2dShape kShapes[] = {
    {2, 7, 6, 16, 16, 3, 3, 1, 1},  // channels that fill vectors
    {3, 9, 9, 16, 32, 3, 3, 2, 1}, {2, 6, 6, 32, 16, 1, 1, 2, 0},
    {2, 8, 8, 1, 32, 3, 3, 1, 1},  // ResNet's first layer
    {2, 7, 8, 3, 5, 5, 5, 1, 0},   // odd ones
    {0, 7, 6, 16, 16, 3, 3, 1, 1},
};

TEST(Conv2d, OfBfloat16IsTheFloatOneRounded) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  int in_library = 0, all = 0;
  for (const Conv2dShape& s : kShapes)
    for (const Math math : {Math::library, Math::own}) {
      SCOPED_TRACE(std::string(math == Math::own ? "own, " : "library, ") + std::to_string(s.in_channels) +
                   " to " + std::to_string(s.out_channels) + " channels");
      const TestMath context(math);
      const auto values = [](int64_t n, uint32_t salt) {
        return through_bfloat16(random_floats(static_cast<size_t>(n), -1, 1, salt));
      };
      const std::vector<float> x = values(s.input_size(), 1), w = values(s.weight_size(), 2),
                               dy = values(s.output_size(), 3);
      const DeviceBuffer<float> bias(random_floats(static_cast<size_t>(s.out_channels), -1, 1, 4));
      const DeviceBuffer<float> wide_x(x), wide_w(w), wide_dy(dy), y(dy.size(), kNaN), dx(x.size(), kNaN),
          dw(w.size(), kNaN);
      const DeviceBuffer<__nv_bfloat16> narrow_x(rounded(x)), narrow_w(rounded(w)), narrow_dy(rounded(dy)),
          narrow_y(rounded(std::vector<float>(dy.size(), kNaN))),
          narrow_dx(rounded(std::vector<float>(x.size(), kNaN)));
      const DeviceBuffer<float> narrow_dw(w.size(), kNaN);
      size_t bytes = 0;
      for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_filter}) {
        bytes = std::max({bytes, conv2d_workspace_bytes<float>(context, s, pass),
                          conv2d_workspace_bytes<__nv_bfloat16>(context, s, pass)});
        if (s.batch > 0 && math == Math::library) {
          in_library += conv2d_library_path<__nv_bfloat16>().supports(context, s, pass) ? 1 : 0;
          ++all;
        }
      }
      const DeviceBuffer<uint8_t> workspace(bytes, uint8_t{255});  // NaN
      conv2d_forward(context, s, wide_x.data(), wide_w.data(), bias.data(), y.data(), workspace.data());
      conv2d_backward_data(context, s, wide_dy.data(), wide_w.data(), dx.data(), workspace.data());
      conv2d_backward_filter(context, s, wide_x.data(), wide_dy.data(), dw.data(), workspace.data());
      conv2d_forward(context, s, narrow_x.data(), narrow_w.data(), bias.data(), narrow_y.data(),
                     workspace.data());
      conv2d_backward_data(context, s, narrow_dy.data(), narrow_w.data(), narrow_dx.data(), workspace.data());
      conv2d_backward_filter(context, s, narrow_x.data(), narrow_dy.data(), narrow_dw.data(),
                             workspace.data());
      workspace.to_host();  // for its guards
      const int64_t taps = int64_t{s.kernel_height} * s.kernel_width;
      // The sum and the sum with the bias are rounded one after the other: half a step of at most 1 more,
      // where the bias cancels the sum.
      const std::vector<float> got_y = widened(narrow_y.to_host()), want_y = y.to_host();
      ASSERT_EQ(got_y.size(), want_y.size());
      for (size_t i = 0; i < got_y.size(); ++i)
        expect_near(got_y[i], want_y[i], 0x1p-8 * (2 * std::fabs(want_y[i]) + 1.01) + 1e-5,
                    "y " + std::to_string(i));
      expect_agreement(widened(narrow_dx.to_host()), dx.to_host(), taps * s.out_channels, 0x1p-8, "dx");
      // cuDNN's own gradient of the weights is bfloat16.
      expect_agreement(narrow_dw.to_host(), dw.to_host(), s.batch * s.out_height() * s.out_width(), 0x1p-8,
                       "dw");
    }
  std::cout << "cuDNN supports " << in_library << " of " << all << " passes in bfloat16\n";
}

}  // namespace
}  // namespace lockstep::kernels
