// PyTorch itself reads what we export and computes our logits, and we compute those of weights that it wrote.
// Runs where Python has torch and safetensors: LOCKSTEP_PYTHON, or python3.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "apps/common/models.h"
#include "apps/common/pytorch_names.h"
#include "core/autograd.h"
#include "nn/init.h"
#include "nn/pytorch.h"
#include "tests/apps/program.h"
#include "tests/nn/idx_files.h"

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

class PyTorchPeer : public testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("LOCKSTEP_PYTHON");
    python_ = named != nullptr && *named != '\0' ? named : "python3";
    const Outcome found = run_program({"/usr/bin/env", python_, "-c", "import safetensors, torch"});
    if (found.exit_code != 0)
      GTEST_SKIP() << python_ << " does not have torch and safetensors: set LOCKSTEP_PYTHON to one that does";
  }

  std::vector<float> values(const std::string& file, const std::string& tensor_name) const {
    for (const data::HostTensor& tensor : data::read_safetensors(folder_.path() / file).tensors)
      if (tensor.name == tensor_name) {
        std::vector<float> values(tensor.bytes.size() / sizeof(float));
        std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
        return values;
      }
    throw Error(file + " has no tensor " + tensor_name);
  }

  // Both compute in float32, in different orders of summation.
  static void expect_close(const std::vector<float>& ours, const std::vector<float>& theirs) {
    ASSERT_EQ(ours.size(), theirs.size());
    float largest = 0;
    for (const float value : theirs) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 0);
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 1e-4F * largest) << i;
  }

  std::string python_;
  data::TemporaryFolder folder_;
};

TEST_F(PyTorchPeer, ComputesOurLogitsFromOurExportAndWeItsFromItsOwn) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const Device device = make_devices(1)[0];
  const NoGrad no_grad;
  std::normal_distribution<float> normal;
  std::vector<float> pixels(kImages * kSide * kSide);
  for (float& pixel : pixels) pixel = normal(random);
  const Tensor x = Tensor::from_host(pixels, {kImages, kSide, kSide, 1}, device);
  data::HostTensor images{.name = "x",
                          .dtype = data::StoredType::f32,
                          .shape = x.shape(),
                          .bytes = std::vector<std::byte>(x.bytes())};
  std::memcpy(images.bytes.data(), pixels.data(), images.bytes.size());
  data::write_safetensors(folder_.path() / "images.safetensors", {images});

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

  const Outcome peer = run_program({"/usr/bin/env", python_, PYTORCH_MODELS, folder_.path().string()});
  ASSERT_EQ(peer.exit_code, 0) << peer.error;

  for (size_t i = 0; i < cases().size(); ++i) {
    const auto& [name, description] = cases()[i];
    SCOPED_TRACE(name);
    nn::Module& module = *modules[i];
    expect_close(module(x).to_host<float>(), values(name + ".logits.safetensors", "logits"));
    const std::string theirs = name + ".theirs.safetensors";
    nn::load_pytorch_state_dict(module, pytorch_names(description),
                                data::read_safetensors(folder_.path() / theirs).tensors, theirs);
    expect_close(module(x).to_host<float>(), values(name + ".their_logits.safetensors", "logits"));
  }
}

}  // namespace
}  // namespace lockstep::apps
