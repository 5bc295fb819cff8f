// Names and layout of PyTorch: each element lands where PyTorch's indices say, and comes back.
#include "nn/io/pytorch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "nn/io/state_dict.h"
#include "nn/layers.h"
#include "nn/models/lenet.h"
#include "tests/error_of.h"

namespace lockstep::nn {
namespace {

using data::HostTensor;
using data::StoredType;

Device device() {
  return make_devices(1)[0];
}

// Every element of the module is a number of its own.
void fill(const Module& module) {
  float next = 0;
  const auto number = [&](const Tensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.size()));
    std::iota(values.begin(), values.end(), next);
    next += static_cast<float>(values.size());
    tensor.copy_from(Tensor::from_host(values, tensor.shape(), tensor.device()));
  };
  for (const Parameter& parameter : module.named_parameters()) number(parameter.value);
  for (const Buffer& buffer : module.named_buffers()) number(buffer.value);
}

const HostTensor& find(const std::vector<HostTensor>& tensors, const char* name) {
  for (const HostTensor& tensor : tensors)
    if (tensor.name == name) return tensor;
  throw Error(fmt::format("no tensor {}", name));
}

std::vector<float> values_of(const HostTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// A residual net small enough for every test: a stem, one block, pooling to 2 x 2, and a linear layer behind
// it.
std::shared_ptr<Sequential> small_net() {
  auto net = std::make_shared<Sequential>();
  net->add("conv1", std::make_shared<Conv2d>(1, 3, 3, device(), Window{1, 1}, Bias::none));
  net->add("bn1", std::make_shared<BatchNorm2d>(3, device(), Activation::relu));
  auto stage = std::make_shared<Sequential>();
  stage->add(std::make_shared<Residual>(
      3, 5, device(),
      ResidualOptions{.stride = 2, .shortcut = Shortcut::normed_projection, .bias = Bias::none}));
  net->add("stage", stage);
  net->add("pool", std::make_shared<AdaptiveAvgPool2d>(2, 2));
  net->add("flatten", std::make_shared<Flatten>());
  net->add("fc1", std::make_shared<Linear>(20, 20, device()));
  net->add("fc2", std::make_shared<Linear>(20, 4, device()));
  return net;
}

const PyTorchNames kNames = {
    .first = {{"stage", "layer1"}, {"fc2", "head.1"}},
    .inner = {{"conv3", "downsample.0"}, {"bn3", "downsample.1"}, {"conv1", "first"}}};

TEST(PyTorchStateDict, PutsConvolutionsChannelsFirst) {
  const Conv2d conv(3, 4, 2, device());
  fill(conv);
  const auto state = pytorch_state_dict(conv, {});
  const HostTensor& weight = find(state, "weight");
  EXPECT_EQ(weight.shape, (Shape{4, 3, 2, 2}));
  const std::vector<float> values = values_of(weight);
  for (size_t o = 0, i = 0; o < 4; ++o)
    for (size_t c = 0; c < 3; ++c)
      for (size_t y = 0; y < 2; ++y)
        for (size_t x = 0; x < 2; ++x)
          EXPECT_EQ(values[i++], static_cast<float>(((o * 2 + y) * 2 + x) * 3 + c));  // ours: [o, y, x, c]
}

TEST(PyTorchStateDict, PermutesTheColumnsOfTheFirstLinearLayerBehindAFlattenOnly) {
  const auto net = lenet(LeNet::article, device());
  fill(*net);
  const auto ours = state_dict(*net), theirs = pytorch_state_dict(*net, {});
  const auto before = values_of(find(ours, "fc1.weight")), after = values_of(find(theirs, "fc1.weight"));
  EXPECT_EQ(find(theirs, "fc1.weight").shape, (Shape{120, 256}));
  for (size_t row : {0, 7, 119})
    for (size_t c = 0; c < 16; ++c)
      for (size_t y = 0; y < 4; ++y)
        for (size_t x = 0; x < 4; ++x)
          EXPECT_EQ(after[row * 256 + (c * 4 + y) * 4 + x], before[row * 256 + (y * 4 + x) * 16 + c]);
  for (const char* name : {"fc2.weight", "fc3.weight", "fc1.bias", "conv1.bias"})
    EXPECT_EQ(find(theirs, name).bytes, find(ours, name).bytes) << name;
}

TEST(PyTorchStateDict, NamesAndOrdersTensorsAsPyTorchDoes) {
  std::vector<std::string> names;
  for (const HostTensor& tensor : pytorch_state_dict(*small_net(), kNames)) {
    names.push_back(tensor.name);
    if (tensor.name.ends_with("num_batches_tracked")) {
      EXPECT_EQ(tensor.dtype, StoredType::i64);
      EXPECT_EQ(tensor.shape, Shape{});
      EXPECT_EQ(tensor.bytes, std::vector<std::byte>(8));
    }
  }
  std::vector<std::string> want = {"conv1.weight"};
  const auto norm = [&want](const std::string& name) {
    for (const char* part : {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"})
      want.push_back(name + "." + part);
  };
  norm("bn1");
  want.push_back("layer1.0.first.weight");
  norm("layer1.0.bn1");
  want.push_back("layer1.0.conv2.weight");
  norm("layer1.0.bn2");
  want.push_back("layer1.0.downsample.0.weight");
  norm("layer1.0.downsample.1");
  for (const char* name : {"fc1.weight", "fc1.bias", "head.1.weight", "head.1.bias"}) want.emplace_back(name);
  EXPECT_EQ(names, want);
}

TEST(LoadPyTorchStateDict, BringsBackEveryBit) {
  for (const auto& [from, to] : {std::pair{small_net(), small_net()},
                                 {lenet(LeNet::article, device()), lenet(LeNet::article, device())},
                                 {lenet(LeNet::chapter, device()), lenet(LeNet::chapter, device())},
                                 {lenet(LeNet::classic, device()), lenet(LeNet::classic, device())}}) {
    fill(*from);
    load_pytorch_state_dict(*to, kNames, pytorch_state_dict(*from, kNames), "x");
    EXPECT_EQ(state_dict(*to), state_dict(*from));
  }
}

TEST(LoadPyTorchStateDict, AcceptsAnyOrderThePrefixOfDataParallelAndNoCounts) {
  constexpr unsigned kSeed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const auto from = small_net(), to = small_net();
  fill(*from);
  std::vector<HostTensor> tensors = pytorch_state_dict(*from, kNames);
  std::erase_if(tensors, [](const HostTensor& tensor) { return tensor.name == "bn1.num_batches_tracked"; });
  for (HostTensor& tensor : tensors) tensor.name = "module." + tensor.name;
  std::shuffle(tensors.begin(), tensors.end(), std::mt19937(kSeed));
  load_pytorch_state_dict(*to, kNames, tensors, "x");
  EXPECT_EQ(state_dict(*to), state_dict(*from));
}

TEST(LoadPyTorchStateDict, NamesWhatDoesNotFitAsTheFileDoesAndChangesNothing) {
  const auto net = small_net();
  fill(*net);
  std::vector<HostTensor> tensors = pytorch_state_dict(*net, kNames);
  const auto before = state_dict(*net);
  for (HostTensor& tensor : tensors) {
    std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{1});
    if (tensor.name == "conv1.weight") tensor.shape = {3, 3, 3, 1};  // as many elements, in our layout
    if (tensor.name == "bn1.weight") tensor.name = "bn1.gamma";
    if (tensor.name == "head.1.bias") {
      tensor.dtype = StoredType::bf16;
      tensor.bytes.resize(tensor.bytes.size() / 2);
    }
  }
  const std::string message =
      error_of([&] { load_pytorch_state_dict(*net, kNames, tensors, "net.safetensors"); });
  for (const char* part : {"net.safetensors does not fit the model: ", "missing: bn1.weight",
                           "of another shape: conv1.weight ([3, 3, 3, 1], expected [3, 1, 3, 3])",
                           "of another type: head.1.bias (BF16, expected F32)", "unknown: bn1.gamma"})
    EXPECT_NE(message.find(part), message.npos) << message;
  EXPECT_EQ(message.find('\n'), message.npos);
  EXPECT_EQ(state_dict(*net), before);
}

TEST(LoadPyTorchStateDict, TakesThePrefixAsPartOfTheNameWhereNotAllHaveIt) {
  const auto net = lenet(LeNet::article, device());
  std::vector<HostTensor> tensors = pytorch_state_dict(*net, {});
  tensors[0].name = "module." + tensors[0].name;
  EXPECT_EQ(error_of([&] { load_pytorch_state_dict(*net, {}, tensors, "x"); }),
            "x does not fit the model: missing: conv1.weight; unknown: module.conv1.weight");
}

class Scale : public Module {
 public:
  Scale() { add_parameter("weight", {2}, device()); }
  Tensor forward(const Tensor& x) override { return x; }
  std::string describe() const override { return "Scale"; }
};

TEST(PyTorchStateDict, RefusesLayersThatItDoesNotKnow) {
  Sequential net;
  net.add("scale", std::make_shared<Scale>());
  EXPECT_EQ(error_of([&] { pytorch_state_dict(net, {}); }),
            "scale.Scale: its layout in PyTorch is not known");
}

}  // namespace
}  // namespace lockstep::nn
