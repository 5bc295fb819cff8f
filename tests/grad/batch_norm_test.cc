// Gradient checks for batch norm in both modes, with the addition and the ReLU that it carries out itself.
#include <gtest/gtest.h>

#include "nn/layers.h"
#include "tests/grad/gradient_check.h"

namespace lockstep::grad {
namespace {

using Inputs = std::vector<std::pair<Shape, std::vector<float>>>;

const Shape kImages{3, 3, 2, 4};

// x, weight, bias, and an addend. x keeps 0.5 away from its mean of 0 or so, bias and addend are small: no
// value that a ReLU looks at comes near 0 when one of them moves by the step.
Inputs inputs() {
  std::vector<float> x = away_from_zero(element_count(kImages), 0.5F, 11);
  std::vector<float> bias = away_from_zero(4, 0.5F, 13),
                     addend = away_from_zero(element_count(kImages), 0.5F, 14);
  for (float& value : bias) value *= 0.1F;
  for (float& value : addend) value *= 0.1F;
  return {{kImages, x}, {{4}, away_from_zero(4, 0.8F, 12)}, {{4}, bias}, {kImages, addend}};
}

nn::BatchNormState state(const Tensor& weight, const Tensor& bias) {
  const Device device = weight.device();
  return {weight, bias, Tensor::from_host<float>({0.1F, -0.1F, 0.05F, 0}, {4}, device),
          Tensor::from_host<float>({1, 0.5F, 2, 0.25F}, {4}, device)};
}

TEST(Gradients, BatchNorm) {
  for (const bool training : {true, false}) {
    SCOPED_TRACE(training ? "training" : "evaluation");
    for (const nn::Activation activation : {nn::Activation::none, nn::Activation::relu}) {
      SCOPED_TRACE(activation == nn::Activation::relu ? "with ReLU" : "alone");
      Inputs without = inputs();
      without.pop_back();
      check_gradients(
          [=](const auto& in) { return nn::batch_norm(in[0], state(in[1], in[2]), training, activation); },
          without);
      check_gradients(
          [=](const auto& in) {
            return nn::batch_norm(in[0], state(in[1], in[2]), training, activation, in[3]);
          },
          inputs());
    }
  }
}

}  // namespace
}  // namespace lockstep::grad
