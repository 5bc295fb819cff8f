// Saving and loading what modules and optimizers remember: bit for bit, by name, everything or nothing.
#include "nn/io/state_dict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/autograd.h"
#include "nn/adam.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/models/lenet.h"
#include "nn/sgd.h"
#include "tests/error_of.h"

namespace lockstep::nn {
namespace {

using data::HostTensor;

Device device() {
  return make_devices(1)[0];
}

// Two inputs, a norm and a dropout: parameters, buffers and a counter.
std::shared_ptr<Sequential> small_net() {
  auto net = std::make_shared<Sequential>();
  net->add("conv", std::make_shared<Conv2d>(1, 3, 3, device()))
      .add("norm", std::make_shared<BatchNorm2d>(3, device()));
  net->add("drop", std::make_shared<Dropout>(0.5F, 7)).add("flat", std::make_shared<Flatten>());
  net->add("fc", std::make_shared<Linear>(12, 2, device()));
  initialise(*net, Init::kaiming, 3);
  return net;
}

std::vector<std::string> names_of(const std::vector<HostTensor>& tensors) {
  std::vector<std::string> names;
  for (const HostTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

void one_step(Sequential& net, Optimizer& optimizer) {
  std::vector<float> pixels(3 * 16);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::sin(static_cast<float>(i));
  for (const Tensor& parameter : net.parameters()) parameter.set_grad(Tensor());
  const Tensor logits = net.forward(Tensor::from_host(pixels, {3, 4, 4, 1}, device()));
  backward(cross_entropy(logits, Tensor::from_host<int32_t>({0, 1, 1}, {3}, device()), Reduction::mean));
  optimizer.step(0.1F);
}

TEST(StateDict, HoldsParametersThenBuffersByName) {
  const auto net = small_net();
  const std::vector<HostTensor> saved = state_dict(*net);
  EXPECT_EQ(names_of(saved),
            (std::vector<std::string>{"conv.weight", "conv.bias", "norm.weight", "norm.bias", "fc.weight",
                                      "fc.bias", "norm.running_mean", "norm.running_var"}));
  EXPECT_EQ(saved[0].shape, (Shape{3, 3, 3, 1}));
  EXPECT_EQ(saved[0].dtype, data::StoredType::f32);
  EXPECT_EQ(names_of(replica_state(*net)),
            (std::vector<std::string>{"norm.running_mean", "norm.running_var", "drop.step"}));
}

TEST(StateDict, GoesIntoAnotherModuleBitForBitInAnyOrder) {
  const auto net = small_net();
  Sgd sgd(net->parameters(), {.momentum = 0.9F});
  one_step(*net, sgd);
  std::vector<HostTensor> saved = state_dict(*net);
  EXPECT_NE(saved, state_dict(*small_net()));
  const auto other = small_net();
  const Tensor weight = other->parameters()[0];
  std::reverse(saved.begin(), saved.end());
  load_state_dict(*other, saved, "x");
  EXPECT_EQ(state_dict(*other), state_dict(*net));
  EXPECT_EQ(weight.data<float>(), other->parameters()[0].data<float>()) << "written in place";
  load_replica_state(*other, replica_state(*net), "x");
  EXPECT_EQ(replica_state(*other), replica_state(*net));
  EXPECT_EQ(*other->named_counters()[0].value, 1);
}

TEST(StateDict, OneErrorNamesEverythingThatDoesNotFit) {
  const auto net = small_net();
  const std::vector<HostTensor> before = state_dict(*net);
  std::vector<HostTensor> wrong = before;
  wrong[0].shape = {3, 3, 1, 3};
  wrong[1].dtype = data::StoredType::i32;
  wrong[4].name = "head.weight";
  std::fill(wrong[5].bytes.begin(), wrong[5].bytes.end(), std::byte{1});
  EXPECT_EQ(error_of([&] { load_state_dict(*net, wrong, "w.safetensors"); }),
            "w.safetensors does not fit the model: missing: fc.weight; of another shape: conv.weight ([3, 3, "
            "1, 3], "
            "expected [3, 3, 3, 1]); of another type: conv.bias (I32, expected F32); unknown: head.weight");
  EXPECT_EQ(state_dict(*net), before) << "nothing is loaded where something does not fit";
}

TEST(StateDict, ShortensALongList) {
  EXPECT_EQ(error_of([] { load_state_dict(*small_net(), {}, "w"); }),
            "w does not fit the model: missing: conv.weight, conv.bias, norm.weight, norm.bias, fc.weight "
            "and 3 more");
}

// Trains, saves, trains on; a second pair that loads what was saved must reach the same bits.
template <typename MakeOne>
void expect_resumes(const MakeOne& make) {
  const auto net = small_net();
  auto optimizer = make(net->parameters());
  for (int i = 0; i < 3; ++i) one_step(*net, *optimizer);
  const auto names = parameter_names(*net);
  const std::vector<HostTensor> weights = state_dict(*net), own = replica_state(*net),
                                state = optimizer->state(names);
  for (int i = 0; i < 3; ++i) one_step(*net, *optimizer);

  const auto other = small_net();
  auto resumed = make(other->parameters());
  load_state_dict(*other, weights, "x");
  load_replica_state(*other, own, "x");
  resumed->load_state(names, state, "x");
  for (int i = 0; i < 3; ++i) one_step(*other, *resumed);
  EXPECT_EQ(state_dict(*other), state_dict(*net));
  EXPECT_EQ(resumed->state(names), optimizer->state(names));
}

std::unique_ptr<Optimizer> make_sgd(std::vector<Tensor> parameters) {
  return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.momentum = 0.9F, .nesterov = true});
}

std::unique_ptr<Optimizer> make_adam(std::vector<Tensor> parameters) {
  return std::make_unique<Adam>(std::move(parameters), AdamOptions{});
}

TEST(OptimizerState, SgdGoesOnBitForBit) {
  expect_resumes(make_sgd);
}

TEST(OptimizerState, AdamGoesOnBitForBit) {
  expect_resumes(make_adam);
}

TEST(OptimizerState, IsNamedByParameter) {
  const auto net = small_net();
  const auto names = parameter_names(*net);
  EXPECT_EQ(make_sgd(net->parameters())->state(names).front().name, "conv.weight.velocity");
  EXPECT_EQ(names_of(make_adam({net->parameters().front()})->state({"conv.weight"})),
            (std::vector<std::string>{"conv.weight.first_moment", "conv.weight.second_moment",
                                      "conv.weight.steps"}));
  EXPECT_TRUE(Sgd(net->parameters(), {}).state(names).empty());
}

TEST(OptimizerState, OfAnotherOptimizerIsRefused) {
  const auto net = small_net();
  const std::vector<Tensor> first{net->parameters().front()};
  EXPECT_EQ(
      error_of([&] {
        make_sgd(first)->load_state({"conv.weight"}, make_adam(first)->state({"conv.weight"}), "x.state");
      }),
      "x.state does not fit the optimizer: missing: conv.weight.velocity; unknown: conv.weight.first_moment, "
      "conv.weight.second_moment, conv.weight.steps");
  EXPECT_EQ(error_of([&] { make_sgd(first)->state({}); }), "the optimizer's state: 0 names for 1 parameters");
}

}  // namespace
}  // namespace lockstep::nn
