#include "nn/module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/models/lenet.h"
#include "nn/schedule.h"
#include "nn/sgd.h"

namespace lockstep::nn {
namespace {

Device device() {
  return make_devices(1)[0];
}

TEST(LeNet, HasTheParametersOfItsVariant) {
  EXPECT_EQ(lenet(LeNet::article, device())->parameter_count(), 44426);
  EXPECT_EQ(lenet(LeNet::chapter, device())->parameter_count(), 129068);
  EXPECT_EQ(lenet(LeNet::classic, device())->parameter_count(), 61706);
}

TEST(LeNet, GivesTenLogitsAnImage) {
  for (const LeNet variant : {LeNet::article, LeNet::chapter, LeNet::classic})
    EXPECT_EQ(lenet(variant, device())->forward(Tensor::zeros({3, 28, 28, 1}, device())).shape(),
              (Shape{3, 10}));
}

TEST(Module, NamesParametersByTheirPath) {
  std::vector<std::string> names;
  for (const Parameter& parameter : lenet(LeNet::chapter, device())->named_parameters())
    names.push_back(parameter.name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                             "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}));
  auto inner = std::make_shared<Sequential>();
  inner->add(std::make_shared<ReLU>()).add(std::make_shared<Linear>(2, 3, device()));
  Sequential outer;
  outer.add("block", inner);
  EXPECT_EQ(outer.named_parameters()[0].name, "block.1.weight");
}

TEST(Module, NamesBuffersApartFromParameters) {
  auto inner = std::make_shared<Sequential>();
  inner->add(std::make_shared<ReLU>()).add(std::make_shared<BatchNorm2d>(3, device()));
  Sequential outer;
  outer.add("block", inner);
  std::vector<std::string> names;
  for (const Buffer& buffer : outer.named_buffers()) names.push_back(buffer.name);
  EXPECT_EQ(names, (std::vector<std::string>{"block.1.running_mean", "block.1.running_var"}));
  EXPECT_EQ(outer.parameter_count(), 6);
}

TEST(Module, PassesItsModeOnToAllBelow) {
  auto late = std::make_shared<ReLU>();
  auto leaf = std::make_shared<ReLU>();
  auto inner = std::make_shared<Sequential>();
  inner->add(leaf);
  Sequential outer;
  outer.add("block", inner);
  EXPECT_TRUE(leaf->training());
  outer.eval();
  EXPECT_FALSE(leaf->training());
  inner->add(late);
  EXPECT_FALSE(late->training());
  outer.train();
  EXPECT_TRUE(leaf->training());
  EXPECT_TRUE(late->training());
}

TEST(EvaluationMode, PutsEveryModuleBackIntoItsOwnMode) {
  Sequential net;
  const auto block = std::make_shared<Sequential>();
  const auto frozen = std::make_shared<BatchNorm2d>(1, device()),
             norm = std::make_shared<BatchNorm2d>(1, device());
  const auto off = std::make_shared<Dropout>(0.5F, 1);
  block->add("frozen", frozen).add("norm", norm);
  net.add("block", block).add("off", off).add("again", norm);
  frozen->eval();
  off->eval();
  {
    const EvaluationMode evaluation(net);
    for (const Module* module : std::initializer_list<Module*>{&net, block.get(), frozen.get(), norm.get()})
      EXPECT_FALSE(module->training());
    const EvaluationMode inner(*block);
  }
  for (const Module* module : std::initializer_list<Module*>{&net, block.get(), norm.get()})
    EXPECT_TRUE(module->training());
  EXPECT_FALSE(frozen->training());
  EXPECT_FALSE(off->training());
  net.eval();
  norm->train();
  {
    const EvaluationMode evaluation(net);
  }
  EXPECT_FALSE(net.training());
  EXPECT_TRUE(norm->training());
}

TEST(Module, KeepsAFrozenChildFrozen) {
  const auto frozen = std::make_shared<BatchNorm2d>(1, device());
  frozen->eval();
  const auto block = std::make_shared<Sequential>();
  block->add("frozen", frozen);
  Sequential net;
  net.add("block", block);
  EXPECT_FALSE(frozen->training());
  EXPECT_TRUE(block->training());
}

TEST(Module, RefusesTwoLayersOfOneName) {
  Sequential net;
  net.add("a", std::make_shared<ReLU>());
  EXPECT_THROW(net.add("a", std::make_shared<ReLU>()), Error);
}

TEST(Module, ComputesWithTheParametersThatWereSet) {
  Linear layer(2, 1, device());
  const std::vector<Tensor> weights{Tensor::from_host<float>({3, 4}, {1, 2}, device()),
                                    Tensor::from_host<float>({5}, {1}, device())};
  layer.set_parameters(weights);
  EXPECT_EQ(layer.forward(Tensor::from_host<float>({1, 10}, {1, 2}, device())).item(), 48.0F);
  EXPECT_EQ(layer.parameters()[0].data<float>(), weights[0].data<float>());
}

TEST(Module, NamesTheParameterWhoseShapeDiffers) {
  auto net = lenet(LeNet::article, device());
  std::vector<Tensor> values = net->parameters();
  values[4] = Tensor::zeros({120, 255}, device());
  try {
    net->set_parameters(values);
    FAIL() << "a wrong shape was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "set_parameters: fc1.weight has shape [120, 256], the tensor for it [120, 255]");
  }
}

// Mean and deviation of n values have standard errors sd / sqrt(n) and about sd / sqrt(2 n); five of them are
// exceeded once in two million draws, and the draw is fixed by the seed.
TEST(Init, DrawsWithTheDeviationOfItsRule) {
  Linear layer(400, 300, device());
  const double n = 400 * 300;
  const std::vector<std::pair<Init, double>> rules = {
      {Init::normal, 0.01}, {Init::kaiming, std::sqrt(2.0 / 400)}, {Init::xavier, std::sqrt(2.0 / 700)}};
  for (const auto& [init, deviation] : rules) {
    initialise(layer, init, 3);
    double sum = 0, squares = 0, largest = 0;
    for (const float value : layer.parameters()[0].to_host<float>()) {
      sum += value;
      squares += static_cast<double>(value) * static_cast<double>(value);
      largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
    EXPECT_NEAR(sum / n, 0, 5 * deviation / std::sqrt(n));
    EXPECT_NEAR(std::sqrt(squares / n), deviation, 5 * deviation / std::sqrt(2 * n));
    if (init == Init::xavier) {
      EXPECT_LE(largest, std::sqrt(6.0 / 700));
    }
    EXPECT_EQ(layer.parameters()[1].to_host<float>(), std::vector<float>(300, 0.0F));
  }
}

TEST(Init, DependsOnTheSeedAlone) {
  const std::vector<Device> devices = make_devices(2);
  const auto values = [](const Device& on, uint64_t seed) {
    const auto net = lenet(LeNet::article, on);
    initialise(*net, Init::kaiming, seed);
    return net->parameters()[2].to_host<float>();
  };
  EXPECT_EQ(values(devices[0], 1), values(devices[1], 1));
  EXPECT_NE(values(devices[0], 1), values(devices[0], 2));
}

TEST(Init, StartsNormsAsOnesAndForgetsRunningStatistics) {
  BatchNorm2d norm(2, device());
  const auto values = [&] {
    std::vector<std::vector<float>> all;
    for (const Parameter& parameter : norm.named_parameters())
      all.push_back(parameter.value.to_host<float>());
    for (const Buffer& buffer : norm.named_buffers()) all.push_back(buffer.value.to_host<float>());
    return all;
  };
  const std::vector<std::vector<float>> start{{1, 1}, {0, 0}, {0, 0}, {1, 1}};
  EXPECT_EQ(values(), start);
  norm.forward(Tensor::from_host<float>({1, 2, 3, 4}, {2, 1, 1, 2}, device()));
  EXPECT_NE(values(), start);
  initialise(norm, Init::kaiming, 1);
  EXPECT_EQ(values(), start);
}

TEST(Schedule, RisesInTheWarmUpAndFallsToZero) {
  EXPECT_EQ(schedule_factor(Schedule::constant, 0, 100, 0), 1.0);
  EXPECT_EQ(schedule_factor(Schedule::constant, 99, 100, 10), 1.0);
  EXPECT_DOUBLE_EQ(schedule_factor(Schedule::constant, 7, 100, 10), 0.8);
  EXPECT_DOUBLE_EQ(schedule_factor(Schedule::cosine, 0, 100, 10), 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor(Schedule::cosine, 9, 100, 10), 1.0);
  EXPECT_DOUBLE_EQ(schedule_factor(Schedule::cosine, 54, 99, 10), 0.5);  // as far from step 9 as from 99
  EXPECT_GT(schedule_factor(Schedule::cosine, 99, 100, 10), 0.0);
  EXPECT_LT(schedule_factor(Schedule::cosine, 99, 100, 10), 0.001);
  // Three steps, one of them warm-up: down to half, then to a quarter of the way.
  EXPECT_DOUBLE_EQ(schedule_factor(Schedule::cosine, 1, 3, 1), 0.75);
  EXPECT_DOUBLE_EQ(schedule_factor(Schedule::cosine, 2, 3, 1), 0.25);
  // One epoch alone is all warm-up.
  EXPECT_DOUBLE_EQ(schedule_factor(Schedule::cosine, 9, 10, 10), 1.0);
}

TEST(Schedule, StepDecayCountsFromTheStartOfTheRun) {
  const StepDecay decay{.every = 30, .gamma = 0.5};
  const auto factor = [&](int64_t step) { return schedule_factor(Schedule::step, step, 100, 10, decay); };
  EXPECT_DOUBLE_EQ(factor(0), 0.1);
  EXPECT_DOUBLE_EQ(factor(9), 1.0);
  EXPECT_DOUBLE_EQ(factor(29), 1.0);
  EXPECT_DOUBLE_EQ(factor(30), 0.5);
  EXPECT_DOUBLE_EQ(factor(59), 0.5);
  EXPECT_DOUBLE_EQ(factor(60), 0.25);
  EXPECT_DOUBLE_EQ(factor(99), 0.125);
  EXPECT_THROW(schedule_factor(Schedule::step, 0, 100, 0, {.every = 0}), Error);
}

TEST(Schedule, TheScaledRateGrowsWithTheBatch) {
  EXPECT_DOUBLE_EQ(scaled_rate(0.1, 256, 256), 0.1);
  EXPECT_DOUBLE_EQ(scaled_rate(0.1, 1024, 256), 0.4);
  EXPECT_DOUBLE_EQ(scaled_rate(0.1, 96, 256), 0.0375);
  EXPECT_THROW(scaled_rate(0.1, 0, 256), Error);
  EXPECT_THROW(scaled_rate(0.1, 256, 0), Error);
}

TEST(GradientArena, HoldsTheGradientsOfAllParametersLastLayerFirst) {
  Sequential net;
  net.add("a", std::make_shared<Linear>(2, 3, device())).add("b", std::make_shared<Linear>(3, 1, device()));
  const Tensor arena = gradient_arena(net.parameters());
  EXPECT_EQ(arena.size(), 4 * 64);  // each starts at a multiple of 64 floats
  EXPECT_EQ(net.parameters().back().grad().data<float>(), arena.data<float>());
  EXPECT_EQ(net.parameters().front().grad().data<float>(), arena.data<float>() + 3 * 64);
  EXPECT_EQ(net.parameters().front().grad().shape(), (Shape{3, 2}));
}

TEST(Sgd, LeavesAParameterWithoutAGradientAlone) {
  Linear layer(1, 1, device());
  layer.set_parameters(
      {Tensor::from_host<float>({2}, {1, 1}, device()), Tensor::from_host<float>({3}, {1}, device())});
  Sgd optimizer(layer.parameters(), {.momentum = 0.9F, .weight_decay = 0.1F});
  layer.parameters()[0].set_grad(Tensor::from_host<float>({4}, {1, 1}, device()));
  optimizer.step(0.5F, 0.25F);
  // 2 - 0.5 * (4 * 0.25 + 0.1 * 2) = 1.4, within one rounding of each operation.
  EXPECT_NEAR(layer.parameters()[0].item(), 1.4F, 1e-6);
  EXPECT_EQ(layer.parameters()[1].item(), 3.0F);
}

}  // namespace
}  // namespace lockstep::nn
