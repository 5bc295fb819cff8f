// Layers that behave differently in training and in evaluation, and fused operations against separate ones.
#include "nn/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/autograd.h"
#include "tests/error_of.h"

namespace lockstep::nn {
namespace {

Device device() {
  return make_devices(1)[0];
}

std::vector<float> random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(generator);
  return values;
}

TEST(Linear, WithoutABiasIsThatOfABiasOfZeros) {
  const Device on = make_devices(1)[0];
  Linear plain(3, 2, on, Bias::none), with(3, 2, on);
  EXPECT_EQ(plain.describe(), "Linear(3 -> 2, no bias)");
  ASSERT_EQ(plain.parameters().size(), 1U);
  const std::vector<float> weights{1, -2, 3, -4, 5, -6};
  const Tensor weight = Tensor::from_host(weights, {2, 3}, on);
  plain.parameters()[0].copy_from(weight);
  with.parameters()[0].copy_from(weight);
  const Tensor x = Tensor::from_host(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}, on);
  const Tensor y = plain(x);
  EXPECT_EQ(y.to_host<float>(), with(x).to_host<float>());
  backward(y, Tensor::from_host(std::vector<float>{1, 10, 100, 1000}, {2, 2}, on));
  EXPECT_EQ(plain.parameters()[0].grad().to_host<float>(),
            (std::vector<float>{401, 502, 603, 4010, 5020, 6030}));
}

TEST(BatchNorm2d, NormalisesByTheBatchInTrainingAndByRunningStatisticsInEvaluation) {
  BatchNorm2d norm(1, device());
  const Tensor x = Tensor::from_host<float>({1, 2, 3, 6}, {2, 2, 1, 1}, device());  // mean 3, variance 3.5
  const std::vector<float> trained = norm.forward(x).to_host<float>();
  // mean 0.1 * 3; variance 0.9 + 0.1 * 14 / 3, the unbiased one.
  const std::vector<Buffer> buffers = norm.named_buffers();
  const double running_mean = 0.3, running_var = 0.9 + 1.4 / 3;
  EXPECT_NEAR(buffers[0].value.item(), running_mean, 1e-6);
  EXPECT_NEAR(buffers[1].value.item(), running_var, 1e-6);
  norm.eval();
  const std::vector<float> evaluated = norm.forward(x).to_host<float>();
  const double values[] = {1, 2, 3, 6};
  for (size_t i = 0; i < 4; ++i) {
    // A handful of roundings of numbers below 6.
    EXPECT_NEAR(trained[i], (values[i] - 3) / std::sqrt(3.5 + 1e-5), 2e-6);
    EXPECT_NEAR(evaluated[i], (values[i] - running_mean) / std::sqrt(running_var + 1e-5), 3e-6);
  }
  EXPECT_NEAR(buffers[0].value.item(), running_mean, 1e-6);  // evaluation leaves them alone
}

TEST(BatchNorm2d, LeavesRunningStatisticsAloneForAnEmptyBatch) {
  BatchNorm2d norm(3, device());
  EXPECT_EQ(norm.forward(Tensor::zeros({0, 4, 4, 3}, device())).shape(), (Shape{0, 4, 4, 3}));
  EXPECT_EQ(norm.named_buffers()[0].value.to_host<float>(), std::vector<float>(3, 0.0F));
  EXPECT_EQ(norm.named_buffers()[1].value.to_host<float>(), std::vector<float>(3, 1.0F));
}

TEST(BatchNorm2d, SaysWhatDoesNotFit) {
  BatchNorm2d norm(3, device());
  EXPECT_EQ(error_of([&] { norm.forward(Tensor::zeros({2, 4, 4, 5}, device())); }),
            "batch_norm: input [2, 4, 4, 5] has 5 channels, the norm 3");
  EXPECT_EQ(error_of([&] {
              norm.forward(Tensor::zeros({2, 4, 4, 3}, device()), Tensor::zeros({2, 2, 2, 3}, device()));
            }),
            "batch_norm: [2, 2, 2, 3] cannot be added to [2, 4, 4, 3]");
  EXPECT_EQ(error_of([&] { norm.forward(Tensor::zeros({1, 1, 1, 3}, device())); }),
            "batch_norm: one value per channel has no variance: train with more rows or larger images");
  norm.eval();
  EXPECT_EQ(norm.forward(Tensor::zeros({1, 1, 1, 3}, device())).shape(), (Shape{1, 1, 1, 3}));
}

// The fused passes compute the same expressions as separate ones: values may differ by the rounding of an
// addition.
TEST(BatchNorm2d, WithAdditionAndReLUEqualsTheSeparateOperations) {
  constexpr uint64_t kSeed = 17;
  SCOPED_TRACE("seed 17");
  const Shape shape{5, 6, 7, 20};
  const auto n = element_count(shape);
  const auto run = [&](bool fused) {
    BatchNorm2d norm(20, device(), fused ? Activation::relu : Activation::none);
    Tensor x = Tensor::from_host(random_values(n, kSeed), shape, device());
    Tensor addend = Tensor::from_host(random_values(n, kSeed + 1), shape, device());
    x.set_requires_grad(true);
    addend.set_requires_grad(true);
    const Tensor y = fused ? norm.forward(x, addend) : relu(add(norm.forward(x), addend));
    backward(y, Tensor::from_host(random_values(n, kSeed + 2), shape, device()));
    std::vector<std::vector<float>> results{y.to_host<float>(), x.grad().to_host<float>(),
                                            addend.grad().to_host<float>()};
    for (const Tensor& parameter : norm.parameters()) results.push_back(parameter.grad().to_host<float>());
    return results;
  };
  const auto fused = run(true), separate = run(false);
  for (size_t tensor = 0; tensor < fused.size(); ++tensor)
    for (size_t i = 0; i < fused[tensor].size(); ++i)
      // Sums over 210 rows of values around 1.
      ASSERT_NEAR(fused[tensor][i], separate[tensor][i], tensor < 3 ? 2e-6 : 2e-5)
          << "tensor " << tensor << ", element " << i;
}

TEST(Conv2d, WithoutABiasHasNone) {
  Conv2d conv(3, 5, 3, device(), {}, Bias::none);
  EXPECT_EQ(conv.named_parameters().size(), 1U);
  EXPECT_EQ(conv.parameter_count(), 3 * 3 * 3 * 5);
  EXPECT_EQ(conv.describe(), "Conv2d(3 -> 5, 3x3, no bias)");
  const Tensor x = Tensor::from_host(random_values(2 * 6 * 6 * 3, 1), {2, 6, 6, 3}, device());
  const Tensor weight = Tensor::from_host(random_values(135, 2), {5, 3, 3, 3}, device());
  conv.set_parameters({weight});
  EXPECT_EQ(conv.forward(x).to_host<float>(),
            conv2d(x, weight, Tensor::zeros({5}, device())).to_host<float>());
}

TEST(AdaptiveAvgPool2d, OfOneOutputIsTheMeanOfTheImage) {
  AdaptiveAvgPool2d pool(1, 1);
  const Tensor y =
      pool.forward(Tensor::from_host<float>({1, 10, 2, 20, 3, 30, 6, 60}, {1, 2, 2, 2}, device()));
  EXPECT_EQ(y.shape(), (Shape{1, 1, 1, 2}));
  EXPECT_EQ(y.to_host<float>(), (std::vector<float>{3, 30}));
  EXPECT_NE(error_of([&] { adaptive_avg_pool2d(y, 0, 1); }), "");
}

TEST(Dropout, DrawsAnewEachStepInTrainingAndRestsInEvaluation) {
  const Tensor x = Tensor::from_host(std::vector<float>(1000, 3), {10, 100}, device());
  Dropout first(0.25F, 1), same(0.25F, 1), other(0.25F, 2);
  const std::vector<float> values = first.forward(x).to_host<float>();
  EXPECT_EQ(values, same.forward(x).to_host<float>());
  EXPECT_NE(values, other.forward(x).to_host<float>());
  EXPECT_NE(values, first.forward(x).to_host<float>());
  for (const float value : values) EXPECT_TRUE(value == 0 || value == 4) << value;  // 3 / 0.75
  first.eval();
  EXPECT_EQ(first.forward(x).to_host<float>(), std::vector<float>(1000, 3));
  EXPECT_EQ(error_of([] { Dropout(1, 1); }), "Dropout: probability 1: use at least 0 and less than 1");
}

TEST(Add, SaysWhichShapesDiffer) {
  EXPECT_EQ(error_of([] { add(Tensor::zeros({2, 3}, device()), Tensor::zeros({3, 2}, device())); }),
            "add: shapes [2, 3] and [3, 2] differ");
}

}  // namespace
}  // namespace lockstep::nn
