// Convolutions against a plain loop in double: the path that conv.cu chooses for Math::library, im2col
// (Math::own) and the direct kernel, over kernels, strides, paddings, channels and batches around the lanes.
#include "kernels/conv/conv.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv/conv_paths.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/math_context.h"

namespace lockstep::kernels {
namespace {

using test::DeviceBuffer;
using test::TestMath;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// What one test case holds: a shape, and its operands between -1 and 1.
struct Case {
  Conv2dShape shape;
  std::vector<float> x, w, bias, dy;
};

Case make_case(const Conv2dShape& shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  const auto values = [&](int64_t size) {
    std::vector<float> v(static_cast<size_t>(size));
    for (float& value : v) value = uniform(generator);
    return v;
  };
  return {shape, values(shape.input_size()), values(shape.weight_size()), values(shape.out_channels),
          values(shape.output_size())};
}

struct Expected {
  std::vector<double> y, dx, dw;
};

// Forward, and both gradients of the sum of y * dy, straight from the definition.
Expected expected(const Case& c) {
  const Conv2dShape& s = c.shape;
  Expected e{std::vector<double>(c.dy.size()), std::vector<double>(c.x.size()),
             std::vector<double>(c.w.size())};
  size_t out = 0;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int oy = 0; oy < s.out_height(); ++oy)
      for (int ox = 0; ox < s.out_width(); ++ox)
        for (int oc = 0; oc < s.out_channels; ++oc, ++out) {
          e.y[out] = double{c.bias[oc]};
          for (int ky = 0; ky < s.kernel_height; ++ky)
            for (int kx = 0; kx < s.kernel_width; ++kx) {
              const int iy = oy * s.stride - s.padding + ky;
              const int ix = ox * s.stride - s.padding + kx;
              if (iy < 0 || iy >= s.height || ix < 0 || ix >= s.width) continue;
              for (int ic = 0; ic < s.in_channels; ++ic) {
                const size_t in = ((n * s.height + iy) * s.width + ix) * s.in_channels + ic;
                const size_t weight =
                    ((int64_t{oc} * s.kernel_height + ky) * s.kernel_width + kx) * s.in_channels + ic;
                e.y[out] += double{c.x[in]} * c.w[weight];
                e.dx[in] += double{c.dy[out]} * c.w[weight];
                e.dw[weight] += double{c.dy[out]} * c.x[in];
              }
            }
        }
  return e;
}

// A sum of `terms` products of values up to 1. Each addition rounds by at most half an ulp of the partial
// sum; over random signs that sum is of the order of sqrt(terms), and so is the number of roundings that add
// up: eps * terms, and as much again for the order of the sum being any.
void expect_near(const std::vector<float>& got, const std::vector<double>& wanted, int64_t terms,
                 const char* what) {
  const double tolerance = 2 * std::numeric_limits<float>::epsilon() * static_cast<double>(terms + 2);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], tolerance) << what << "[" << i << "]";
}

DeviceBuffer<char> workspace(size_t bytes) {
  return DeviceBuffer<char>(bytes, static_cast<char>(-1));  // -1 in every byte is a NaN
}

int64_t taps(const Conv2dShape& s) {
  return int64_t{s.kernel_height} * s.kernel_width;
}

// The three passes through conv.h. Outputs start as NaN, so a value left unwritten shows.
void check_entry_points(const Case& c, const Expected& e, Math math) {
  SCOPED_TRACE(math == Math::own ? "own" : "library");
  const Conv2dShape& s = c.shape;
  const TestMath context(math);
  const DeviceBuffer<float> x(c.x), w(c.w), bias(c.bias), dy(c.dy);
  const DeviceBuffer<float> y(c.dy.size(), kNaN), dx(c.x.size(), kNaN), dw(c.w.size(), kNaN);
  const auto scratch = [&](ConvPass pass) { return workspace(conv2d_workspace_bytes(context, s, pass)); };
  const auto forward = scratch(ConvPass::forward);
  conv2d_forward(context, s, x.data(), w.data(), bias.data(), y.data(), forward.data());
  const auto data = scratch(ConvPass::backward_data);
  conv2d_backward_data(context, s, dy.data(), w.data(), dx.data(), data.data());
  const auto filter = scratch(ConvPass::backward_filter);
  conv2d_backward_filter(context, s, x.data(), dy.data(), dw.data(), filter.data());
  expect_near(y.to_host(), e.y, taps(s) * s.in_channels, "y");
  expect_near(dx.to_host(), e.dx, taps(s) * s.out_channels, "dx");
  expect_near(dw.to_host(), e.dw, s.batch * s.out_height() * s.out_width(), "dw");
  for (const auto* buffer : {&forward, &data, &filter}) buffer->to_host();  // checks the guards
}

// The passes that one path supports; returns how many these are.
int check_path(const ConvPath<float>& path, const Case& c, const Expected& e) {
  SCOPED_TRACE(path.name);
  const Conv2dShape& s = c.shape;
  const TestMath context(Math::library);
  const DeviceBuffer<float> x(c.x), w(c.w), bias(c.bias), dy(c.dy);
  const DeviceBuffer<float> y(c.dy.size(), kNaN), dx(c.x.size(), kNaN), dw(c.w.size(), kNaN);
  int supported = 0;
  const auto check_pass = [&](ConvPass pass, auto run) {
    if (!path.supports(context, s, pass)) return;
    ++supported;
    const auto scratch = workspace(path.workspace_bytes(context, s, pass));
    run(scratch.data());
    scratch.to_host();  // checks the guards
  };
  check_pass(ConvPass::forward, [&](auto* scratch) {
    path.forward(context, s, x.data(), w.data(), bias.data(), y.data(), scratch);
    expect_near(y.to_host(), e.y, taps(s) * s.in_channels, "y");
  });
  check_pass(ConvPass::backward_data, [&](auto* scratch) {
    path.backward_data(context, s, dy.data(), w.data(), dx.data(), scratch);
    expect_near(dx.to_host(), e.dx, taps(s) * s.out_channels, "dx");
  });
  check_pass(ConvPass::backward_filter, [&](auto* scratch) {
    path.backward_filter(context, s, x.data(), dy.data(), dw.data(), scratch);
    expect_near(dw.to_host(), e.dw, s.batch * s.out_height() * s.out_width(), "dw");
  });
  return supported;
}

constexpr int64_t kLargestInGpuForm = 100000;  // products; as fibers this takes milliseconds

void check_all(const Conv2dShape& s) {
  const unsigned seed = 7;
  SCOPED_TRACE("batch " + std::to_string(s.batch) + ", " + std::to_string(s.height) + " x " +
               std::to_string(s.width) + ", channels " + std::to_string(s.in_channels) + " to " +
               std::to_string(s.out_channels) + ", kernel " + std::to_string(s.kernel_height) + " x " +
               std::to_string(s.kernel_width) + ", stride " + std::to_string(s.stride) + ", padding " +
               std::to_string(s.padding) + ", seed " + std::to_string(seed));
  const Case c = make_case(s, seed);
  const Expected e = expected(c);
  check_entry_points(c, e, Math::library);
  check_entry_points(c, e, Math::own);
  if (s.batch == 0) return;
  for (const ConvPath<float>* path :
       {&conv2d_small_path(), &conv2d_padded_path<float>(), &conv2d_im2col_path(Math::library)})
    check_path(*path, c, e);
  if (s.batch * s.out_height() * s.out_width() * s.weight_size() <= kLargestInGpuForm)
    test::in_both_forms([&] { check_path(conv2d_direct_path(), c, e); });
  else
    check_path(conv2d_direct_path(), c, e);
}

// Sizes are small, so that the kernels can also run as fibers.
TEST(Conv, EveryKernelStrideAndPaddingMatchesALoopInDouble) {
  for (const int kernel : {1, 3, 5, 7})
    for (const int stride : {1, 2})
      for (const int padding : {0, 1, 2, 3}) check_all({3, 9, 8, 3, 5, kernel, kernel, stride, padding});
}

TEST(Conv, ANonSquareKernelMatchesALoopInDouble) {
  check_all({2, 7, 9, 3, 4, 2, 5, 1, 1});
  check_all({2, 9, 7, 2, 6, 5, 1, 2, 2});
  check_all({2, 3, 3, 2, 6, 1, 3, 1, 3});
}

TEST(Conv, EveryChannelCountMatchesALoopInDouble) {
  for (const int in : {1, 3, 6, 16, 20, 50})
    for (const int out : {1, 3, 6, 16, 20, 50}) check_all({2, 4, 5, in, out, 3, 3, 1, 1});
}

TEST(Conv, EveryBatchMatchesALoopInDouble) {
  for (const int batch : {0, 1, 7, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 100})
    check_all({batch, 5, 6, 2, 6, 3, 3, 1, 0});
}

TEST(Conv, TheLayersOfLeNetMatchALoopInDouble) {
  check_all({2, 28, 28, 1, 6, 5, 5, 1, 0});
  check_all({2, 28, 28, 1, 6, 5, 5, 1, 2});
  check_all({2, 12, 12, 6, 16, 5, 5, 1, 0});
  check_all({1, 14, 14, 6, 16, 5, 5, 1, 0});
  check_all({1, 28, 28, 1, 20, 3, 3, 1, 0});
  check_all({1, 13, 13, 20, 50, 5, 5, 1, 0});
}

TEST(Conv, CudnnMatchesALoopInDoubleWhereItSupportsTheShape) {
  int passes = 0;
  int supported = 0;
  for (const int kernel : {1, 3, 5})
    for (const int stride : {1, 2})
      for (const int padding : {0, 2})
        for (const int channels : {3, 16, 64}) {
          const Conv2dShape s{2, 7, 6, channels, 32, kernel, kernel, stride, padding};
          SCOPED_TRACE("kernel " + std::to_string(kernel) + ", stride " + std::to_string(stride) +
                       ", padding " + std::to_string(padding) + ", channels " + std::to_string(channels));
          const Case c = make_case(s, 5);
          passes += 3;
          supported += check_path(conv2d_library_path<float>(), c, expected(c));
        }
  std::printf("cuDNN supports %d of %d passes\n", supported, passes);
  EXPECT_GT(supported, 0);
}

TEST(Conv, AGpusKernelForFewChannelsTakesSeveralImagesABlock) {
  check_all({700, 3, 4, 2, 3, 2, 2, 1, 1});  // of at most 512 blocks
  const Case c = make_case({3, 6, 6, 8, 24, 3, 3, 1, 1}, 13);
  EXPECT_EQ(check_path(conv2d_small_path(), c, expected(c)), 3);
}

// FNV-1a over the bits of every result of the direct kernel on LeNet's layers, and of the library on layers
// with many channels: with more tiles of 4x4 than channels, with fewer, and with stride 2.
uint64_t hash_of_results() {
  uint64_t hash = 14695981039346656037u;
  const auto add = [&hash](const DeviceBuffer<float>& buffer) {
    for (const float value : buffer.to_host()) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      hash = (hash ^ bits) * 1099511628211u;
    }
  };
  const auto add_results = [&add](const ConvPath<float>& path, const Conv2dShape& s, unsigned seed) {
    const Case c = make_case(s, seed);
    const TestMath context(Math::library);
    const DeviceBuffer<float> x(c.x), w(c.w), bias(c.bias), dy(c.dy);
    const DeviceBuffer<float> y(c.dy.size(), kNaN), dx(c.x.size(), kNaN), dw(c.w.size(), kNaN);
    size_t bytes = 0;
    for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_filter})
      bytes = std::max(bytes, path.workspace_bytes(context, s, pass));
    const auto scratch = workspace(bytes);
    path.forward(context, s, x.data(), w.data(), bias.data(), y.data(), scratch.data());
    path.backward_data(context, s, dy.data(), w.data(), dx.data(), scratch.data());
    path.backward_filter(context, s, x.data(), dy.data(), dw.data(), scratch.data());
    add(y);
    add(dx);
    add(dw);
  };
  for (const Conv2dShape& s :
       {Conv2dShape{70, 12, 12, 6, 16, 5, 5, 1, 0}, Conv2dShape{70, 14, 14, 1, 6, 5, 5, 1, 2}})
    add_results(conv2d_direct_path(), s, 3);
  for (const Conv2dShape& s :
       {Conv2dShape{12, 28, 28, 32, 48, 3, 3, 1, 1}, Conv2dShape{9, 7, 7, 32, 144, 3, 3, 1, 1},
        Conv2dShape{5, 14, 14, 32, 48, 3, 3, 2, 1}, Conv2dShape{5, 14, 14, 16, 80, 1, 1, 2, 0}})
    add_results(conv2d_library_path<float>(), s, 4);
  return hash;
}

// The number of workers is fixed when a process starts, so this program runs itself with several.
TEST(ConvWorkers, TheResultsDoNotDependOnTheirNumber) {
  if (std::getenv("LOCKSTEP_PRINT_HASH") != nullptr) {
    std::printf("hash %016llx\n", static_cast<unsigned long long>(hash_of_results()));
    return;
  }
  std::array<char, 4096> program{};
  ASSERT_GT(readlink("/proc/self/exe", program.data(), program.size() - 1), 0);
  std::vector<std::string> hashes;
  for (const int workers : {1, 2, 3}) {
    const std::string command = "LOCKSTEP_PRINT_HASH=1 HOSTCUDA_THREADS=" + std::to_string(workers) + " '" +
                                program.data() + "' --gtest_filter='ConvWorkers.*'";
    FILE* const output = popen(command.c_str(), "r");
    ASSERT_NE(output, nullptr);
    std::array<char, 256> line{};
    while (std::fgets(line.data(), line.size(), output))
      if (std::strncmp(line.data(), "hash ", 5) == 0) hashes.emplace_back(line.data());
    ASSERT_EQ(pclose(output), 0) << command;
  }
  ASSERT_EQ(hashes.size(), 3u);
  EXPECT_EQ(hashes[0], hashes[1]) << "1 worker against 2";
  EXPECT_EQ(hashes[0], hashes[2]) << "1 worker against 3";
}

TEST(Conv, AnAbsentBiasIsZero) {
  for (const Math math : {Math::library, Math::own}) {
    Case c = make_case({3, 6, 6, 2, 5, 3, 3, 1, 1}, 11);
    c.bias.assign(c.bias.size(), 0.0f);
    const Expected e = expected(c);
    const TestMath context(math);
    const DeviceBuffer<float> x(c.x), w(c.w), y(c.dy.size(), kNaN);
    const auto scratch = workspace(conv2d_workspace_bytes(context, c.shape, ConvPass::forward));
    conv2d_forward(context, c.shape, x.data(), w.data(), nullptr, y.data(), scratch.data());
    expect_near(y.to_host(), e.y, taps(c.shape) * c.shape.in_channels, "y");
  }
}

TEST(Conv, AKernelLargerThanThePaddedInputIsRefused) {
  const TestMath context(Math::own);
  EXPECT_THROW(conv2d_workspace_bytes(context, {1, 4, 4, 1, 1, 5, 5, 1, 0}, ConvPass::forward), Error);
  EXPECT_THROW(conv2d_workspace_bytes(context, {1, 4, 4, 1, 1, 3, 3, 0, 0}, ConvPass::forward), Error);
}

}  // namespace
}  // namespace lockstep::kernels
