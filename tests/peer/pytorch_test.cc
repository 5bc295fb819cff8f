// PyTorch itself reads what we export and computes our logits, and we compute those of weights that it wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "apps/common/models.h"
#include "apps/common/pytorch_names.h"
#include "core/autograd.h"
#include "nn/init.h"
#include "nn/io/pytorch.h"
#include "tests/peer/pytorch_peer.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kImages = 3, kSide = 28;
constexpr unsigned kSeed = 11;

struct Case {
  std::string name;
  ModelDescription description;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"lenet_article", {{"model", "lenet"}, {"variant", "article"}}},
      {"lenet_chapter", {{"model", "lenet"}, {"variant", "chapter"}}},
      {"lenet_classic", {{"model", "lenet"}, {"variant", "classic"}}},
      {"resnet18_chapter", {{"model", "resnet18"}, {"variant", "chapter"}, {"stem", "small"}}},
      {"resnet18_torchvision",
       {{"model", "resnet18"}, {"variant", "torchvision"}, {"stem", "imagenet"}, {"classes", "7"}}}};
  return all;
}

// Gives biases, scales and running statistics other values than those that a model starts with.
void disturb(const nn::Module& module, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0F, 0.1F);
  const auto add_noise = [&](const Tensor& tensor) {
    std::vector<float> values = tensor.to_host<float>();
    for (float& value : values) value += normal(random);
    tensor.copy_from(Tensor::from_host(values, tensor.shape(), tensor.device()));
  };
  for (const nn::Parameter& parameter : module.named_parameters())
    if (parameter.value.shape().size() == 1) add_noise(parameter.value);
  for (const nn::Buffer& buffer : module.named_buffers()) add_noise(buffer.value);
}

// Both compute in float32, in different orders of summation.
void expect_close(const std::vector<float>& ours, const std::vector<float>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  float largest = 0;
  for (const float value : theirs) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 0);
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 1e-4F * largest) << i;
}

TEST_F(PyTorchPeer, ComputesOurLogitsFromOurExportAndWeItsFromItsOwn) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const Device device = make_devices(1)[0];
  const NoGrad no_grad;
  const Tensor x = images(kImages, kSide, random, device);

  std::vector<std::shared_ptr<nn::Module>> modules;
  for (const auto& [name, description] : cases()) {
    const Model model = named_model(description);
    modules.push_back(model.make(device));
    nn::initialise(*modules.back(), nn::Init::kaiming, kSeed);
    disturb(*modules.back(), random);
    modules.back()->eval();
    data::write_safetensors(folder_.path() / (name + ".ours.safetensors"),
                            nn::pytorch_state_dict(*modules.back(), pytorch_names(model.description)),
                            model.description);
  }

  ASSERT_NO_FATAL_FAILURE(run_python("pytorch_models.py"));

  for (size_t i = 0; i < cases().size(); ++i) {
    const auto& [name, description] = cases()[i];
    SCOPED_TRACE(name);
    nn::Module& module = *modules[i];
    expect_close(module(x).to_host<float>(), values(name + ".logits.safetensors", "logits"));
    const std::string theirs = name + ".theirs.safetensors";
    nn::load_pytorch_state_dict(module, pytorch_names(description), tensors(theirs), theirs);
    expect_close(module(x).to_host<float>(), values(name + ".their_logits.safetensors", "logits"));
  }
}

}  // namespace
}  // namespace lockstep::apps
