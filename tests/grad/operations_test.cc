// A gradient check for every operation of nn/layers.h, and proof that the check itself can fail.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "core/autograd.h"
#include "nn/layers.h"
#include "tests/grad/gradient_check.h"

namespace lockstep::grad {
namespace {

using Inputs = std::vector<std::pair<Shape, std::vector<float>>>;

Inputs random_inputs(const std::vector<Shape>& shapes) {
  Inputs inputs;
  uint64_t seed = 100;
  for (const Shape& shape : shapes)
    inputs.emplace_back(shape, away_from_zero(element_count(shape), 0.05F, ++seed));
  return inputs;
}

TEST(GradientCheck, FindsAWrongGradient) {
  EXPECT_FATAL_FAILURE(check_gradients(
                           [](const std::vector<Tensor>& in) {
                             return record(
                                 "half", in[0].copy_to(in[0].device()), {in[0]}, [](const Tensor& dy) {
                                   return std::vector<Tensor>{Tensor::zeros(dy.shape(), dy.device())};
                                 });
                           },
                           random_inputs({{3}})),
                       "input 0, element 0");
}

TEST(Gradients, Linear) {
  check_gradients([](const auto& in) { return nn::linear(in[0], in[1], in[2]); },
                  random_inputs({{5, 7}, {4, 7}, {4}}));
}

// Channel counts of LeNet and odd ones; strides and paddings; windows that leave a rest.
struct ConvCase {
  int64_t batch, height, width, in, out;
  int kernel, stride, padding;
};

class ConvGradients : public testing::TestWithParam<ConvCase> {};

TEST_P(ConvGradients, Conv2d) {
  const ConvCase c = GetParam();
  check_gradients(
      [&](const auto& in) { return nn::conv2d(in[0], in[1], in[2], c.stride, c.padding); },
      random_inputs({{c.batch, c.height, c.width, c.in}, {c.out, c.kernel, c.kernel, c.in}, {c.out}}),
      {.elements = 40});
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvGradients,
                         testing::Values(ConvCase{2, 9, 8, 1, 6, 5, 1, 0}, ConvCase{3, 8, 8, 6, 16, 5, 1, 2},
                                         ConvCase{17, 6, 6, 1, 3, 3, 1, 1}, ConvCase{2, 7, 9, 3, 4, 3, 2, 1},
                                         ConvCase{1, 6, 6, 20, 50, 5, 1, 0},
                                         ConvCase{2, 5, 5, 7, 2, 1, 1, 0}));

TEST(Gradients, MaxPool2d) {
  const Shape shape{2, 6, 7, 3};
  const Inputs inputs{{shape, all_apart(element_count(shape), 0.1F, 7)}};
  // Values are 0.1 apart and move by 0.01: the maximum stays where it is, and the operation is linear.
  check_gradients([](const auto& in) { return nn::max_pool2d(in[0], 2, 2); }, inputs, {.tolerance = 2e-3});
  check_gradients([](const auto& in) { return nn::max_pool2d(in[0], 3, 2, 1); }, inputs, {.tolerance = 2e-3});
}

TEST(Gradients, AvgPool2d) {
  const Inputs inputs = random_inputs({{2, 6, 7, 3}});
  check_gradients([](const auto& in) { return nn::avg_pool2d(in[0], 2, 2); }, inputs);
  check_gradients([](const auto& in) { return nn::avg_pool2d(in[0], 3, 2, 1); }, inputs);
}

TEST(Gradients, Conv2dWithoutABias) {
  check_gradients([](const auto& in) { return nn::conv2d(in[0], in[1], Tensor(), 2, 1); },
                  random_inputs({{2, 7, 9, 3}, {4, 3, 3, 3}}), {.elements = 40});
}

TEST(Gradients, AdaptiveAvgPool2d) {
  const Inputs inputs = random_inputs({{2, 6, 7, 3}});
  check_gradients([](const auto& in) { return nn::adaptive_avg_pool2d(in[0], 1, 1); }, inputs);
  check_gradients([](const auto& in) { return nn::adaptive_avg_pool2d(in[0], 4, 9); }, inputs);
}

TEST(Gradients, Dropout) {
  check_gradients([](const auto& in) { return nn::dropout(in[0], 0.4F, 7, 3); }, random_inputs({{6, 7}}));
}

TEST(Gradients, Add) {
  check_gradients([](const auto& in) { return nn::add(in[0], in[1]); }, random_inputs({{3, 4}, {3, 4}}));
  // The same tensor twice gets both gradients.
  check_gradients([](const auto& in) { return nn::add(in[0], in[0]); }, random_inputs({{3, 4}}));
}

TEST(Gradients, ReLU) {
  check_gradients([](const auto& in) { return nn::relu(in[0]); }, random_inputs({{6, 7}}));
}

TEST(Gradients, Sigmoid) {
  check_gradients([](const auto& in) { return nn::sigmoid(in[0]); }, random_inputs({{6, 7}}));
}

TEST(Gradients, GELU) {
  check_gradients([](const auto& in) { return nn::gelu(in[0]); }, random_inputs({{6, 7}}));
}

TEST(Gradients, SiLU) {
  check_gradients([](const auto& in) { return nn::silu(in[0]); }, random_inputs({{6, 7}}));
}

TEST(Gradients, FlattenAndReshape) {
  check_gradients([](const auto& in) { return nn::flatten(in[0]); }, random_inputs({{2, 3, 2, 2}}));
}

TEST(Gradients, CrossEntropy) {
  for (const auto reduction : {nn::Reduction::sum, nn::Reduction::mean}) {
    check_gradients(
        [reduction](const auto& in) {
          const Tensor labels = Tensor::from_host<int32_t>({3, 0, 9, 9, 5}, {5}, in[0].device());
          return nn::cross_entropy(in[0], labels, reduction);
        },
        random_inputs({{5, 10}}));
  }
}

TEST(Gradients, CrossEntropyWithLabelSmoothing) {
  for (const float smoothing : {0.1F, 1.0F}) {
    check_gradients(
        [smoothing](const auto& in) {
          const Tensor labels = Tensor::from_host<int32_t>({3, 0, 9, 9, 5}, {5}, in[0].device());
          return nn::cross_entropy(in[0], labels, nn::Reduction::sum, smoothing);
        },
        random_inputs({{5, 10}}));
  }
}

}  // namespace
}  // namespace lockstep::grad
