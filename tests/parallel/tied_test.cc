// Tied weights over several devices: one gradient, one place in the arena and one step, on every replica.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "nn/adam.h"
#include "nn/io/state_dict.h"
#include "nn/sgd.h"
#include "parallel/replica_optimizers.h"
#include "parallel/replicas.h"
#include "tests/error_of.h"
#include "tests/parallel/small_net.h"

namespace lockstep::parallel {
namespace {

// One layer under two names.
std::shared_ptr<nn::Module> tied_linear(const Device& device) {
  auto net = std::make_shared<nn::Sequential>();
  const auto layer = std::make_shared<nn::Linear>(2, 2, device);
  net->add("first", layer).add("second", layer);
  layer->parameters()[0].copy_from(Tensor::from_host<float>({1, 0.5F, -0.5F, 1}, {2, 2}, device));
  return net;
}

nn::MakeOptimizer sgd(float momentum, float decay) {
  return [=](std::vector<Tensor> parameters) {
    return std::make_unique<nn::Sgd>(std::move(parameters),
                                     nn::SgdOptions{.momentum = momentum, .weight_decay = decay});
  };
}

std::unique_ptr<nn::Optimizer> adamw(std::vector<Tensor> parameters) {
  return std::make_unique<nn::Adam>(std::move(parameters),
                                    nn::AdamOptions{.weight_decay = 0.1F, .decoupled = true});
}

// Two steps; the values are those of torch.optim on nn.Sequential(l, l) in float64.
TEST(TiedLayers, StepOnceAsInPyTorchOnAnyNumberOfDevices) {
  const std::vector<std::pair<nn::MakeOptimizer, std::vector<float>>> wanted = {
      {sgd(0, 0), {0.5989375F, 0.2591128F, -0.2599152F, 1.0177619F}},
      {sgd(0.9F, 0.1F), {0.1615310F, -0.1156406F, 0.0336112F, 1.1791226F}},
      {adamw, {0.7833688F, 0.2924255F, -0.2921616F, 1.1792086F}}};
  for (const int k : {1, 2, 3}) {
    const std::vector<Device> devices = make_devices(k);
    for (size_t w = 0; w < wanted.size(); ++w) {
      DataParallel net(tied_linear, devices);
      EXPECT_EQ(net.module().parameter_count(), 6);
      EXPECT_EQ(net.gradients().arenas()[0].size(), 2 * 64);  // each starts at a multiple of 64
      ReplicaOptimizers optimizers(net, wanted[w].first);
      for (int step = 0; step < 2; ++step) {
        net.zero_grad();
        backward(nn::cross_entropy(net(Tensor::from_host<float>({1, 2, 3, 4}, {2, 2}, devices[0])),
                                   Tensor::from_host<int32_t>({0, 1}, {2}, devices[0]), nn::Reduction::mean));
        optimizers.step(0.1F);
      }
      const std::vector<float> got = net.module().parameters()[0].to_host<float>();
      for (size_t i = 0; i < 4; ++i)  // some twenty roundings of numbers around 1
        EXPECT_NEAR(got[i], wanted[w].second[i], 2e-6) << k << " devices, optimizer " << w << ", " << i;
      for (const auto& replica : net.replicas()) EXPECT_EQ(weights_of(*replica), weights_of(net.module()));
    }
  }
}

// Three linear layers, of which some are one: "aba" has the first one in the third place again.
std::shared_ptr<nn::Module> tied_by(const std::string& pattern, const Device& device) {
  auto net = std::make_shared<nn::Sequential>();
  std::map<char, std::shared_ptr<nn::Module>> layers;
  for (size_t i = 0; i < pattern.size(); ++i) {
    auto& layer = layers[pattern[i]];
    if (!layer) layer = std::make_shared<nn::Linear>(2, 2, device);
    net->add(fmt::format("l{}", i), layer);
  }
  return net;
}

TEST(TiedLayers, MustBeTheSameInAllReplicas) {
  const std::vector<Device> devices = make_devices(2);
  const auto error = [&](const std::string& first, const std::string& other) {
    return error_of([&] {
      DataParallel net([&](const Device& on) { return tied_by(on == devices[0] ? first : other, on); },
                       devices);
    });
  };
  EXPECT_EQ(error("aba", "abc"),
            "DataParallel: replica 1 has a parameter 'l2.weight', which replica 0 has not: make all replicas "
            "alike");
  EXPECT_EQ(error("aba", "abb"),
            "DataParallel: 'l2.weight' is tied to 'l0.weight' in replica 0 but to 'l1.weight' in replica 1: "
            "make all replicas alike");
}

TEST(TiedLayers, AreSavedWithTheCombinedStatisticsUnderEveryName) {
  const auto tied_norms = [](const Device& device) {
    auto net = std::make_shared<nn::Sequential>();
    const auto norm = std::make_shared<nn::BatchNorm2d>(1, device);
    net->add("first", norm).add("conv", std::make_shared<nn::Conv2d>(1, 1, 3, device, nn::Window{1, 1}));
    net->add("second", norm);
    nn::initialise(*net, nn::Init::kaiming, kSeed);
    return net;
  };
  DataParallel net(tied_norms, make_devices(2));
  net(random_batch(5, net.devices()[0]).x);
  EXPECT_NE(buffers_of(*net.replicas()[0]), buffers_of(*net.replicas()[1]));
  const std::vector<data::HostTensor> saved = net.state_dict();
  net.combine_buffers();
  EXPECT_EQ(saved, nn::state_dict(net.module()));
  EXPECT_EQ(saved.back().name, "second.running_var");
}

TEST(GetParams, RefusesATensorThatIsListedTwice) {
  const Device device = make_devices(1)[0];
  const Tensor a = Tensor::zeros({2}, device);
  EXPECT_EQ(error_of([&] { get_params({a, a}, device); }),
            "get_params: parameters 0 and 1 are one tensor: list it once");
}

}  // namespace
}  // namespace lockstep::parallel
