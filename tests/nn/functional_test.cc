#include "nn/layers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/autograd.h"
#include "kernels/check.h"
#include "tests/error_of.h"
#include "tests/golden/golden.h"

namespace lockstep::nn {
namespace {

Device device() {
  return make_devices(1)[0];
}

TEST(CrossEntropy, OfEqualLogitsIsTheLogarithmOfTheClasses) {
  const Tensor logits = Tensor::zeros({3, 10}, device());
  const Tensor labels = Tensor::from_host<int32_t>({0, 4, 9}, {3}, device());
  // One rounding of log(10) and two of the sum: a few ulp of 7.
  EXPECT_NEAR(cross_entropy(logits, labels, Reduction::sum).item(), 3 * std::log(10.0), 2e-6);
  EXPECT_NEAR(cross_entropy(logits, labels, Reduction::mean).item(), std::log(10.0), 1e-6);
}

TEST(CrossEntropy, OfAnEmptyBatchIsZeroWithZeroGradients) {
  Tensor weight = Tensor::from_host(std::vector<float>(30, 0.5F), {10, 3}, device());
  Tensor bias = Tensor::zeros({10}, device());
  weight.set_requires_grad(true);
  bias.set_requires_grad(true);
  const Tensor logits = linear(Tensor::zeros({0, 3}, device()), weight, bias);
  const Tensor loss = cross_entropy(logits, Tensor::zeros({0}, device(), DType::int32), Reduction::sum);
  EXPECT_EQ(loss.item(), 0.0F);
  backward(loss);
  EXPECT_EQ(weight.grad().to_host<float>(), std::vector<float>(30, 0.0F));
  EXPECT_EQ(bias.grad().to_host<float>(), std::vector<float>(10, 0.0F));
}

TEST(CrossEntropy, WithLabelSmoothingIsThatOfPyTorch) {
  const golden::GoldenFile golden(LOCKSTEP_GOLDEN_DIR "/label_smoothing.golden");
  const auto bytes = golden.values<uint8_t>("labels");
  const Tensor labels =
      Tensor::from_host(std::vector<int32_t>(bytes.begin(), bytes.end()), golden.shape("labels"), device());
  for (const std::string smoothing : {"0", "0.1", "0.5", "1"}) {
    Tensor logits = Tensor::from_host(golden.values<float>("logits"), golden.shape("logits"), device());
    logits.set_requires_grad(true);
    const float share = std::stof(smoothing);
    const double sum = golden.scalar<double>("loss." + smoothing + ".sum");
    // A row's loss is a sum of ten numbers below 20, the loss one of six rows: some forty roundings.
    EXPECT_NEAR(cross_entropy(logits, labels, Reduction::sum, share).item(), sum, 40 * 6e-8 * sum);
    const Tensor mean = cross_entropy(logits, labels, Reduction::mean, share);
    const double wanted_mean = golden.scalar<double>("loss." + smoothing + ".mean");
    EXPECT_NEAR(mean.item(), wanted_mean, 40 * 6e-8 * wanted_mean);
    backward(mean);
    const auto wanted = golden.values<double>("gradient." + smoothing);
    const std::vector<float> got = logits.grad().to_host<float>();
    // No element exceeds 1/6, and each is a product and a difference of a probability with ten roundings.
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], 12 * 6e-8 / 6) << "smoothing " << smoothing << ", element " << i;
  }
}

TEST(Functional, SaysWhichShapesDoNotFit) {
  const Tensor image = Tensor::zeros({2, 4, 4, 3}, device());
  const Tensor bias = Tensor::zeros({6}, device());
  EXPECT_EQ(error_of([&] { conv2d(image, Tensor::zeros({6, 3, 3, 1}, device()), bias); }),
            "conv2d: input [2, 4, 4, 3] has 3 channels, weight [6, 3, 3, 1] expects 1");
  EXPECT_EQ(error_of([&] { conv2d(image, Tensor::zeros({6, 5, 5, 3}, device()), bias); }),
            "conv2d: a kernel of 5 x 5 does not fit into an image of 4 x 4 with padding 0");
  EXPECT_EQ(error_of([&] { conv2d(image, Tensor::zeros({5, 3, 3, 3}, device()), bias); }),
            "conv2d: a bias of shape [6] for 5 channels");
  EXPECT_EQ(error_of([&] { linear(Tensor::zeros({2, 5}, device()), Tensor::zeros({6, 4}, device()), bias); }),
            "linear: input [2, 5] does not fit weight [6, 4]");
  EXPECT_EQ(error_of([&] { linear(image, Tensor::zeros({6, 4}, device()), bias); }),
            "linear: expected 2 dimensions, found shape [2, 4, 4, 3]");
  EXPECT_EQ(error_of([&] { max_pool2d(image, 5, 5); }),
            "max_pool2d: a window of 5 x 5 does not fit into an image of 4 x 4 with padding 0");
  EXPECT_NE(error_of([&] { avg_pool2d(image, 2, 0); }), "");
  EXPECT_EQ(error_of([&] {
              cross_entropy(Tensor::zeros({4, 10}, device()), Tensor::zeros({3}, device(), DType::int32),
                            Reduction::sum);
            }),
            "cross_entropy: logits of shape [4, 10] but labels of shape [3]");
  EXPECT_EQ(error_of([&] {
              cross_entropy(Tensor::zeros({3, 10}, device()), Tensor::zeros({3}, device(), DType::int32),
                            Reduction::sum, 1.5F);
            }),
            "cross_entropy: a label smoothing of 1.5: use 0 to 1");
}

TEST(Functional, SaysWhichTensorIsOnAnotherDevice) {
  const std::vector<Device> devices = make_devices(2);
  EXPECT_EQ(error_of([&] {
              linear(Tensor::zeros({1, 2}, devices[0]), Tensor::zeros({3, 2}, devices[1]),
                     Tensor::zeros({3}, devices[1]));
            }),
            "linear: the input is on device 0, the weight on device 1");
}

}  // namespace
}  // namespace lockstep::nn
