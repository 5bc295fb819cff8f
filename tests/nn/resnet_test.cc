// Residual blocks and ResNet-18: sizes, names, and that they learn.
#include "nn/models/resnet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/autograd.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/sgd.h"
#include "tests/error_of.h"

namespace lockstep::nn {
namespace {

Device device() {
  return make_devices(1)[0];
}

std::string refusal(int64_t in, int64_t out, const ResidualOptions& options) {
  return error_of([&] { Residual(in, out, device(), options); });
}

TEST(Residual, RefusesAtOnceWhatCannotBeAdded) {
  EXPECT_EQ(
      refusal(64, 128, {.stride = 2}),
      "Residual: its convolutions give [batch, height / 2, width / 2, 128], its input is [batch, height, "
      "width, 64]: they cannot be added without a 1x1 convolution in the shortcut");
  EXPECT_NE(refusal(64, 128, {}), "");
  EXPECT_NE(refusal(64, 64, {.stride = 2}), "");
  EXPECT_NO_THROW(Residual(64, 64, device()));
  EXPECT_NO_THROW(Residual(4, 8, device(), {.stride = 2, .shortcut = Shortcut::projection}));
}

TEST(Residual, IsTheReLUOfTheShortcutWhileItsScalesAreZero) {
  Residual block(2, 2, device());
  initialise(block, Init::kaiming, 1);
  for (const Parameter& parameter : block.named_parameters())
    if (parameter.name == "bn2.weight") parameter.value.copy_from(Tensor::zeros({2}, device()));
  const Tensor x = Tensor::from_host<float>({1, -2, 3, -4, 5, 6, -7, 8}, {1, 2, 2, 2}, device());
  EXPECT_EQ(block.forward(x).to_host<float>(), (std::vector<float>{1, 0, 3, 0, 5, 6, 0, 8}));
}

TEST(ResNet18, HasTheParametersOfItsVariant) {
  EXPECT_EQ(resnet18(10, 1, device())->parameter_count(), 11175818);
  EXPECT_EQ(resnet18(1000, 3, device(), ResNetStem::imagenet, ResNetVariant::torchvision)->parameter_count(),
            11689512);
}

TEST(ResNet18, NamesParametersAndBuffersByTheirPath) {
  std::vector<std::string> names, buffers;
  int64_t channels = 0;
  const auto net = resnet18(10, 1, device());
  for (const Parameter& parameter : net->named_parameters()) names.push_back(parameter.name);
  for (const Buffer& buffer : net->named_buffers()) {
    buffers.push_back(buffer.name);
    channels += buffer.value.size();
  }
  const auto has = [](const std::vector<std::string>& all, const char* name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  for (const char* name :
       {"conv1.weight", "bn1.bias", "resnet_block1.0.conv1.weight", "resnet_block2.0.conv1.weight",
        "resnet_block2.0.conv3.bias", "resnet_block4.1.bn2.weight", "fc.weight"})
    EXPECT_TRUE(has(names, name)) << name;
  EXPECT_FALSE(has(names, "resnet_block1.0.conv3.weight"));
  EXPECT_TRUE(has(buffers, "resnet_block2.0.bn1.running_mean"));
  EXPECT_TRUE(has(buffers, "bn1.running_var"));
  // 64, then 4 norms a stage: 64 + 4 (64 + 128 + 256 + 512), of two buffers each.
  EXPECT_EQ(channels, 2 * 3904);
}

TEST(ResNet18, GivesLogitsForImagesOfAnySize) {
  const NoGrad no_grad;
  for (const ResNetVariant variant : {ResNetVariant::chapter, ResNetVariant::torchvision}) {
    EXPECT_EQ(resnet18(10, 1, device(), ResNetStem::small, variant)
                  ->forward(Tensor::zeros({2, 28, 28, 1}, device()))
                  .shape(),
              (Shape{2, 10}));
    EXPECT_EQ(resnet18(7, 3, device(), ResNetStem::imagenet, variant)
                  ->forward(Tensor::zeros({2, 64, 40, 3}, device()))
                  .shape(),
              (Shape{2, 7}));
  }
}

TEST(ResNet18, TakesAnEmptyBatch) {
  const auto net = resnet18(10, 1, device());
  initialise(*net, Init::kaiming, 1);
  const Tensor logits = net->forward(Tensor::zeros({0, 28, 28, 1}, device()));
  EXPECT_EQ(logits.shape(), (Shape{0, 10}));
  backward(cross_entropy(logits, Tensor::zeros({0}, device(), DType::int32), Reduction::sum));
  for (const Parameter& parameter : net->named_parameters())
    for (const float value : parameter.value.grad().to_host<float>())
      ASSERT_EQ(value, 0.0F) << parameter.name;
  for (const Buffer& buffer : net->named_buffers())
    for (const float value : buffer.value.to_host<float>()) ASSERT_EQ(value, buffer.start) << buffer.name;
}

TEST(ResNet18, LowersTheLossOfABatchItTrainsOn) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE("seed 5");
  for (const ResNetVariant variant : {ResNetVariant::chapter, ResNetVariant::torchvision}) {
    const auto net = resnet18(10, 1, device(), ResNetStem::small, variant);
    initialise(*net, Init::kaiming, kSeed);
    std::mt19937_64 generator(kSeed);
    std::normal_distribution<float> normal;
    std::vector<float> pixels(4 * 12 * 12);
    for (float& pixel : pixels) pixel = normal(generator);
    const Tensor x = Tensor::from_host(pixels, {4, 12, 12, 1}, device());
    const Tensor y = Tensor::from_host<int32_t>({0, 3, 3, 9}, {4}, device());
    Sgd optimizer(net->parameters(), {});
    std::vector<float> losses;
    for (int step = 0; step < 4; ++step) {
      for (const Tensor& parameter : net->parameters()) parameter.set_grad(Tensor());
      const Tensor loss = cross_entropy(net->forward(x), y, Reduction::mean);
      losses.push_back(loss.item());
      backward(loss);
      for (const Parameter& parameter : net->named_parameters())
        EXPECT_TRUE(parameter.value.grad().defined()) << parameter.name;
      optimizer.step(0.01F);
    }
    EXPECT_LT(losses.back(), 0.5F * losses.front());
  }
}

}  // namespace
}  // namespace lockstep::nn
