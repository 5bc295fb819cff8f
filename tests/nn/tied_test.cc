// Tied weights: a layer, or a tensor, that a model has in several places is one: counted, drawn and stepped
// once, written under every name, and loaded where all names agree.
#include <gtest/gtest.h>

#include <cstring>

#include "core/autograd.h"
#include "nn/adam.h"
#include "nn/clip.h"
#include "nn/init.h"
#include "nn/io/pytorch.h"
#include "nn/io/state_dict.h"
#include "nn/layers.h"
#include "nn/sgd.h"
#include "tests/error_of.h"

namespace lockstep::nn {
namespace {

using data::HostTensor;

Device device() {
  return make_devices(1)[0];
}

// One linear layer under two names, and one norm and one dropout under two others.
std::shared_ptr<Sequential> tied_net() {
  auto net = std::make_shared<Sequential>();
  const auto layer = std::make_shared<Linear>(4, 4, device());
  const auto norm = std::make_shared<BatchNorm2d>(1, device());
  const auto drop = std::make_shared<Dropout>(0.5F, 3);
  net->add("norm1", norm).add("norm2", norm);
  net->add("flat", std::make_shared<Flatten>());
  net->add("fc1", layer).add("drop1", drop).add("fc2", layer).add("drop2", drop);
  return net;
}

Tensor images() {
  return Tensor::from_host<float>({1, 2, 3, 4, 5, 6, 7, 9}, {2, 2, 2, 1}, device());
}

template <typename T>
std::vector<std::string> names_of(const std::vector<T>& values) {
  std::vector<std::string> names;
  for (const T& value : values) names.push_back(value.name);
  return names;
}

const HostTensor& find(const std::vector<HostTensor>& tensors, const std::string& name) {
  for (const HostTensor& tensor : tensors)
    if (tensor.name == name) return tensor;
  throw Error("no tensor " + name);
}

TEST(TiedLayers, AreListedAndCountedOnceUnderTheirFirstName) {
  const auto net = tied_net();
  EXPECT_EQ(names_of(net->named_parameters()),
            (std::vector<std::string>{"norm1.weight", "norm1.bias", "fc1.weight", "fc1.bias"}));
  EXPECT_EQ(names_of(net->named_buffers()),
            (std::vector<std::string>{"norm1.running_mean", "norm1.running_var"}));
  EXPECT_EQ(names_of(net->named_counters()), std::vector<std::string>{"drop1.step"});
  EXPECT_EQ(parameter_names(*net), names_of(net->named_parameters()));
  EXPECT_EQ(net->parameters().size(), 4U);
  EXPECT_EQ(net->parameter_count(), 2 + 16 + 4);
}

TEST(TiedLayers, AreDrawnOnce) {
  Sequential tied, once;
  const auto layer = std::make_shared<Linear>(4, 4, device());
  tied.add("a", layer).add("b", layer).add("c", std::make_shared<Linear>(4, 3, device()));
  once.add("a", std::make_shared<Linear>(4, 4, device())).add("c", std::make_shared<Linear>(4, 3, device()));
  initialise(tied, Init::kaiming, 5);
  initialise(once, Init::kaiming, 5);
  for (size_t p = 0; p < 4; ++p)
    EXPECT_EQ(tied.parameters()[p].to_host<float>(), once.parameters()[p].to_host<float>()) << p;
}

// l(l(x)), a layer that is called twice: what Sequential(l, l) must do.
class CalledTwice : public Module {
 public:
  CalledTwice() : layer_(std::make_shared<Linear>(4, 4, device())) { add_child("first", layer_); }
  Tensor forward(const Tensor& x) override { return layer_->forward(layer_->forward(x)); }
  std::string describe() const override { return "CalledTwice"; }

 private:
  std::shared_ptr<Linear> layer_;
};

// Three clipped steps; the weights, the optimizer's state, and the norms that clipping found.
std::vector<std::vector<float>> trained(Module& net, const MakeOptimizer& make) {
  initialise(net, Init::kaiming, 7);
  std::vector<std::vector<float>> results;
  const auto optimizer = make(net.parameters());
  for (int step = 0; step < 3; ++step) {
    const Tensor arena = gradient_arena(net.parameters());
    results.push_back({static_cast<float>(arena.size())});
    backward(cross_entropy(net(flatten(images())), Tensor::from_host<int32_t>({0, 3}, {2}, device()),
                           Reduction::mean));
    results.push_back(clip_gradient_norm(arena, 0.01F).to_host<float>());
    optimizer->step(0.1F);
  }
  for (const Tensor& parameter : net.parameters()) results.push_back(parameter.to_host<float>());
  for (const HostTensor& tensor : optimizer->state(parameter_names(net))) {
    results.emplace_back(tensor.bytes.size() / sizeof(float));
    std::memcpy(results.back().data(), tensor.bytes.data(), tensor.bytes.size());
  }
  return results;
}

TEST(TiedLayers, TrainBitForBitAsALayerThatIsCalledTwice) {
  const std::vector<MakeOptimizer> optimizers = {
      [](std::vector<Tensor> parameters) {
        return std::make_unique<Sgd>(std::move(parameters),
                                     SgdOptions{.momentum = 0.9F, .weight_decay = 0.1F});
      },
      [](std::vector<Tensor> parameters) {
        return std::make_unique<Adam>(std::move(parameters),
                                      AdamOptions{.weight_decay = 0.1F, .decoupled = true});
      }};
  for (const MakeOptimizer& make : optimizers) {
    Sequential tied;
    const auto layer = std::make_shared<Linear>(4, 4, device());
    tied.add("first", layer).add("second", layer);
    CalledTwice twice;
    EXPECT_EQ(trained(tied, make), trained(twice, make));
  }
}

// A tensor that two layers share, as PyTorch's `decoder.weight = encoder.weight`.
std::shared_ptr<Sequential> net_with_a_shared_weight() {
  auto net = std::make_shared<Sequential>();
  const auto first = std::make_shared<Linear>(4, 4, device()),
             second = std::make_shared<Linear>(4, 4, device());
  second->set_parameters({first->parameters()[0], second->parameters()[1]});
  net->add("first", first).add("second", second);
  return net;
}

TEST(TiedTensors, AreOneAsTiedLayersAre) {
  const auto net = net_with_a_shared_weight();
  EXPECT_EQ(names_of(net->named_parameters()),
            (std::vector<std::string>{"first.weight", "first.bias", "second.bias"}));
  EXPECT_EQ(net->parameter_count(), 16 + 4 + 4);
  EXPECT_EQ(names_of(state_dict(*net)),
            (std::vector<std::string>{"first.weight", "first.bias", "second.weight", "second.bias"}));
}

TEST(TiedTensors, StayTiedWhenOthersTakeTheirPlace) {
  const auto net = net_with_a_shared_weight();
  std::vector<Tensor> copies;
  for (const Tensor& parameter : net->parameters()) copies.push_back(parameter.copy_to(device()));
  net->set_parameters(copies);
  const Tensor ones = Tensor::from_host(std::vector<float>(16, 1), {4, 4}, device());
  copies[0].copy_from(ones);
  for (const auto& [name, layer] : net->children())
    EXPECT_EQ(layer->parameters()[0].to_host<float>(), ones.to_host<float>()) << name;
  EXPECT_EQ(net->parameters().size(), 3U);
}

// Two layers change their weights with each other: nothing is lost on the way.
TEST(TiedLayers, TakeOtherParametersInAnyOrder) {
  Sequential net;
  const auto layer = std::make_shared<Linear>(2, 2, device());
  net.add("a", layer).add("b", std::make_shared<Linear>(2, 2, device())).add("c", layer);
  const std::vector<Tensor> before = net.parameters();
  net.set_parameters({before[2], before[3], before[0], before[1]});
  const std::vector<Tensor> after = net.parameters();
  for (const size_t p : {0, 1, 2, 3}) EXPECT_EQ(after[p].data<float>(), before[(p + 2) % 4].data<float>());
}

TEST(TiedLayers, AreWrittenUnderEveryName) {
  const auto net = tied_net();
  initialise(*net, Init::kaiming, 1);
  const std::vector<HostTensor> saved = state_dict(*net);
  EXPECT_EQ(names_of(saved), (std::vector<std::string>{"norm1.weight", "norm1.bias", "norm2.weight",
                                                       "norm2.bias", "fc1.weight", "fc1.bias", "fc2.weight",
                                                       "fc2.bias", "norm1.running_mean", "norm1.running_var",
                                                       "norm2.running_mean", "norm2.running_var"}));
  EXPECT_EQ(find(saved, "fc1.weight").bytes, find(saved, "fc2.weight").bytes);
  EXPECT_EQ(names_of(replica_state(*net)),
            (std::vector<std::string>{"norm1.running_mean", "norm1.running_var", "drop1.step"}));
  const auto other = tied_net();
  load_state_dict(*other, saved, "x");
  EXPECT_EQ(state_dict(*other), saved);
}

TEST(TiedLayers, AreLoadedFromEitherNameAndRefusedWhereTheNamesDisagree) {
  const auto net = tied_net();
  initialise(*net, Init::kaiming, 1);
  const std::vector<HostTensor> saved = state_dict(*net);
  const auto other = tied_net();
  std::vector<HostTensor> one_name = saved;  // as what writes shared memory once leaves it
  std::erase_if(one_name, [](const HostTensor& tensor) { return tensor.name == "fc1.weight"; });
  load_state_dict(*other, one_name, "x");
  EXPECT_EQ(state_dict(*other), saved);

  std::vector<HostTensor> apart = saved;
  for (HostTensor& tensor : apart)
    if (tensor.name == "fc2.weight") tensor.bytes[5] ^= std::byte{1};
  std::erase_if(one_name, [](const HostTensor& tensor) { return tensor.name == "fc2.weight"; });
  const auto untouched = tied_net();
  const std::vector<HostTensor> before = state_dict(*untouched);
  EXPECT_EQ(error_of([&] { load_state_dict(*untouched, apart, "w"); }),
            "w does not fit the model: tied here, but of different values: fc1.weight and fc2.weight");
  EXPECT_EQ(error_of([&] { load_state_dict(*untouched, one_name, "w"); }),
            "w does not fit the model: missing: fc1.weight, fc2.weight");
  EXPECT_EQ(state_dict(*untouched), before) << "nothing is loaded where something does not fit";
}

TEST(TiedLayers, GoToPyTorchAndBackUnderEveryName) {
  Sequential net;
  const auto conv = std::make_shared<Conv2d>(2, 2, 3, device(), Window{1, 1});
  const auto norm = std::make_shared<BatchNorm2d>(2, device());
  net.add("a", conv).add("n", norm).add("b", conv).add("m", norm);
  initialise(net, Init::kaiming, 1);
  const std::vector<HostTensor> exported = pytorch_state_dict(net, {});
  EXPECT_EQ(
      names_of(exported),
      (std::vector<std::string>{"a.weight", "a.bias", "n.weight", "n.bias", "n.running_mean", "n.running_var",
                                "n.num_batches_tracked", "b.weight", "b.bias", "m.weight", "m.bias",
                                "m.running_mean", "m.running_var", "m.num_batches_tracked"}));
  EXPECT_EQ(find(exported, "a.weight").bytes, find(exported, "b.weight").bytes);
  const std::vector<HostTensor> ours = state_dict(net);
  initialise(net, Init::kaiming, 2);
  std::vector<HostTensor> apart = exported;
  for (HostTensor& tensor : apart)
    if (tensor.name == "b.weight") tensor.bytes[5] ^= std::byte{1};
  EXPECT_EQ(error_of([&] { load_pytorch_state_dict(net, {}, apart, "w"); }),
            "w does not fit the model: tied here, but of different values: a.weight and b.weight");
  EXPECT_NE(state_dict(net), ours);
  load_pytorch_state_dict(net, {}, exported, "w");
  EXPECT_EQ(state_dict(net), ours);
}

// Behind a flattened image a weight's columns are in another order in PyTorch; elsewhere they are not.
TEST(TiedLayers, ThatPyTorchWouldLayOutInTwoWaysAreRefused) {
  Sequential net;
  const auto layer = std::make_shared<Linear>(8, 8, device());
  net.add("conv", std::make_shared<Conv2d>(1, 2, 1, device())).add("flat", std::make_shared<Flatten>());
  net.add("fc1", layer).add("fc2", layer);
  EXPECT_EQ(
      error_of([&] { pytorch_state_dict(net, {}); }),
      "fc1.weight and fc2.weight are one tensor, but PyTorch would lay them out differently: its linear "
      "layer behind a flattened image has other columns");
}

TEST(TiedTensors, AreRefusedInAListThatWouldUseThemTwice) {
  const Tensor a = Tensor::zeros({2}, device()), b = Tensor::zeros({3}, device());
  EXPECT_EQ(error_of([&] { Sgd({a, b, a}, {}); }),
            "the optimizer: parameters 0 and 2 are one tensor: list it once");
  EXPECT_EQ(error_of([&] { Adam({b, b}, {}); }),
            "the optimizer: parameters 0 and 1 are one tensor: list it once");
  EXPECT_EQ(error_of([&] { gradient_arena({a, b, b}); }),
            "gradient_arena: parameters 1 and 2 are one tensor: list it once");
}

TEST(Module, RefusesAChildThatContainsIt) {
  const auto outer = std::make_shared<Sequential>(), middle = std::make_shared<Sequential>(),
             inner = std::make_shared<Sequential>();
  outer->add("middle", middle);
  middle->add("inner", inner);
  EXPECT_EQ(error_of([&] { outer->add("self", outer); }),
            "a layer named 'self' would contain itself: add another one");
  EXPECT_EQ(error_of([&] { inner->add("outer", outer); }),
            "a layer named 'outer' would contain itself: add another one");
  EXPECT_EQ(error_of([&] { inner->add("none", std::shared_ptr<Module>()); }), "the layer 'none' is null");
  EXPECT_EQ(inner->children().size(), 0U);
}

}  // namespace
}  // namespace lockstep::nn
