// The kernels of layers over bfloat16: activations and their gradients are what the float form gives for the
// same values, rounded once; statistics and parameters' gradients are that form's.
#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>

#include "kernels/adaptive_pool.h"
#include "kernels/bias.h"
#include "kernels/check.h"
#include "kernels/norm/batch_norm.h"
#include "kernels/pool.h"
#include "kernels/random.h"
#include "kernels/softmax.h"
#include "tests/bfloat16.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"
#include "tests/kernels/test_scratch.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

// Arrays of one run, with T for activations. Read back as floats: activations first, then the rest.
template <typename T>
class Arrays {
 public:
  // Activations lie `offset` elements behind an address that is a multiple of 16.
  explicit Arrays(uint32_t seed, size_t offset) : seed_(seed), offset_(offset) {}
  // Values that bfloat16 has, in either type.
  const T* activations(int64_t n) {
    const std::vector<float> values = through_bfloat16(random_floats(static_cast<size_t>(n), -2, 2, ++seed_));
    inputs_.push_back(std::make_unique<DeviceBuffer<T>>(typed(values), offset_));
    return inputs_.back()->data();
  }
  const float* parameters(int64_t n, float low, float high) {
    floats_.push_back(
        std::make_unique<DeviceBuffer<float>>(random_floats(static_cast<size_t>(n), low, high, ++seed_), 3));
    return floats_.back()->data();
  }
  T* result(int64_t n) {
    results_.push_back(
        std::make_unique<DeviceBuffer<T>>(typed(std::vector<float>(static_cast<size_t>(n), kNaN)), offset_));
    return results_.back()->data();
  }
  float* float_result(int64_t n) {
    float_results_.push_back(
        std::make_unique<DeviceBuffer<float>>(std::vector<float>(static_cast<size_t>(n), kNaN), 1));
    return float_results_.back()->data();
  }
  void* workspace(size_t bytes) {
    workspaces_.push_back(std::make_unique<DeviceBuffer<uint8_t>>(bytes, uint8_t{0}));
    return workspaces_.back()->data();
  }
  SumScratch scratch(size_t bytes) {
    scratches_.push_back(std::make_unique<TestScratch>(bytes));
    return *scratches_.back();
  }
  void integer(int value) { integers_.push_back(static_cast<float>(value)); }
  struct Results {
    std::vector<std::vector<float>> activations, floats;
  };
  Results read() const {
    Results all;
    for (const auto& buffer : results_) all.activations.push_back(plain(buffer->to_host()));
    for (const auto& buffer : float_results_) all.floats.push_back(buffer->to_host());
    all.floats.push_back(integers_);
    return all;
  }

 private:
  static std::vector<T> typed(const std::vector<float>& values) {
    if constexpr (std::is_same_v<T, float>)
      return values;
    else
      return rounded(values);
  }
  static std::vector<float> plain(const std::vector<float>& values) { return values; }
  static std::vector<float> plain(const std::vector<__nv_bfloat16>& values) { return widened(values); }

  uint32_t seed_;
  std::vector<float> integers_;
  std::vector<std::unique_ptr<DeviceBuffer<T>>> inputs_, results_;
  std::vector<std::unique_ptr<DeviceBuffer<float>>> floats_, float_results_;
  std::vector<std::unique_ptr<DeviceBuffer<uint8_t>>> workspaces_;
  std::vector<std::unique_ptr<TestScratch>> scratches_;
  size_t offset_;
};

// A compiler may contract products and sums of the two instances of a kernel differently: up to 64 roundings,
// relative to the largest value, lie between their floats.
void expect_agreement(const std::vector<float>& got, const std::vector<float>& want, double rounding,
                      const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const float value : want) largest = std::max<double>(largest, std::fabs(value));
  for (size_t i = 0; i < got.size(); ++i)
    expect_near(got[i], want[i], rounding * std::fabs(want[i]) + 64 * kUnit * largest,
                what + ", element " + std::to_string(i));
}

// Calls run(arrays) with both types, in both forms.
template <typename Run>
void expect_rounded_once(Run run) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  in_both_forms([&] {
    for (const size_t offset : {0, 3}) {  // 16 bytes at once, and one by one
      Arrays<float> wide(1, offset);
      Arrays<__nv_bfloat16> narrow(1, offset);
      run(wide);
      run(narrow);
      const auto want = wide.read();
      const auto got = narrow.read();
      for (size_t i = 0; i < want.activations.size(); ++i)  // 8 significant bits: 2^-8 to either side
        expect_agreement(got.activations[i], want.activations[i], 0x1p-8, "activations " + std::to_string(i));
      for (size_t i = 0; i < want.floats.size(); ++i)
        expect_agreement(got.floats[i], want.floats[i], 0, "floats " + std::to_string(i));
    }
  });
}

TEST(BatchNorm, OverBfloat16RoundsActivationsOnly) {
  for (const BatchNormShape s : {BatchNormShape{7, 3}, {37, 5}, {129, 17}, {300, 70}, {300, 72}}) {
    SCOPED_TRACE(std::to_string(s.rows) + " rows of " + std::to_string(s.channels));
    const int64_t n = s.rows * s.channels;
    for (const bool relu : {false, true})
      expect_rounded_once([&](auto& arrays) {
        const auto* x = arrays.activations(n);
        float *mean = arrays.float_result(s.channels), *inverse = arrays.float_result(s.channels);
        batch_norm_statistics(s, {}, x, mean, inverse, arrays.float_result(s.channels),
                              arrays.float_result(s.channels), arrays.scratch(batch_norm_workspace_bytes(s)),
                              nullptr);
        batch_norm_shard_statistics(s, x, arrays.float_result(2 * s.channels),
                                    arrays.scratch(batch_norm_workspace_bytes(s)), nullptr);
        const float* gamma = arrays.parameters(s.channels, -2, 2);
        const float* beta = arrays.parameters(s.channels, -1, 1);
        const auto* addend = arrays.activations(n);
        batch_norm_normalise(s, x, mean, inverse, gamma, beta, addend, relu, arrays.result(n), nullptr);
        const auto* y = arrays.activations(n);
        batch_norm_backward(s, BatchNormMode::batch, x, relu ? y : nullptr, arrays.activations(n), mean,
                            inverse, gamma, arrays.result(n), arrays.result(n),
                            arrays.float_result(s.channels), arrays.float_result(s.channels),
                            arrays.scratch(batch_norm_workspace_bytes(s)), nullptr);
      });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Pools, OverBfloat16RoundTheFloatResultOnce) {
  for (const Pool2dShape s :
       {Pool2dShape{2, 7, 6, 5, 2, 2, 0}, {2, 6, 7, 17, 3, 2, 1}, {1, 5, 4, 3, 3, 1, 1}}) {
    SCOPED_TRACE(std::to_string(s.channels) + " channels, window " + std::to_string(s.kernel));
    expect_rounded_once([&](auto& arrays) {
      const auto* x = arrays.activations(s.input_size());
      const auto* dy = arrays.activations(s.output_size());
      auto* argmax = static_cast<uint8_t*>(arrays.workspace(static_cast<size_t>(s.output_size())));
      max_pool2d_forward(s, x, arrays.result(s.output_size()), argmax, nullptr);
      max_pool2d_backward(s, dy, argmax, arrays.result(s.input_size()), nullptr);
      avg_pool2d_forward(s, x, arrays.result(s.output_size()), nullptr);
      avg_pool2d_backward(s, dy, arrays.result(s.input_size()), nullptr);
      const AdaptivePool2dShape adaptive{s.batch, s.height, s.width, s.channels, 3, 1};
      adaptive_avg_pool2d_forward(adaptive, x, arrays.result(s.batch * 3 * s.channels), nullptr);
      adaptive_avg_pool2d_backward(adaptive, dy, arrays.result(s.input_size()), nullptr);
    });
  }
}

TEST(Bias, OverBfloat16RoundsActivationsOnly) {
  for (const int64_t rows : {1, 100})
    for (const int channels : {3, 16, 300})
      expect_rounded_once([&](auto& arrays) {
        const auto* x = arrays.activations(rows * channels);
        auto* y = arrays.result(rows * channels);
        LOCKSTEP_CUDA(
            cudaMemcpy(y, x, static_cast<size_t>(rows * channels) * sizeof(*y), cudaMemcpyDeviceToDevice));
        bias_add(y, arrays.parameters(channels, -1, 1), rows, channels, nullptr);
        bias_gradient(x, arrays.float_result(channels), rows, channels,
                      arrays.scratch(bias_gradient_workspace_bytes(rows, channels)), nullptr);
      });
}

TEST(Dropout, OverBfloat16RoundsTheFloatResultOnce) {
  expect_rounded_once([](auto& arrays) {
    dropout(arrays.activations(1001), arrays.result(1001), 1001, 0.3f, 7, 1, nullptr);
  });
}

TEST(SoftmaxCrossEntropy, OfBfloat16LogitsIsThatOfTheirValues) {
  const std::vector<int32_t> labels{0, 9, 3};
  for (const float smoothing : {0.0f, 0.1f})
    expect_rounded_once([&](auto& arrays) {
      const DeviceBuffer<int32_t> label(labels);
      const DeviceBuffer<int32_t> correct(1, 0);
      const DeviceBuffer<LabelFault> fault(1, LabelFault{~0ULL, ~0U});
      const auto* logits = arrays.activations(30);
      softmax_cross_entropy(logits, label.data(), 3, 10, smoothing, 0.5f, arrays.float_result(3),
                            arrays.float_result(30), fault.data(), nullptr);
      count_correct(logits, label.data(), 3, 10, correct.data(), fault.data(), nullptr);
      arrays.integer(correct.to_host()[0]);
    });
}

}  // namespace
}  // namespace lockstep::kernels
