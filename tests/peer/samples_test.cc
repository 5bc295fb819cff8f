// PyTorch's own sample inputs for the operations that Lockstep has, forward and backward, against what it
// computes from them in double. pytorch_samples.py says which of them our options can express.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "core/autograd.h"
#include "nn/layers.h"
#include "tests/peer/pytorch_peer.h"

namespace lockstep::apps {
namespace {

using Json = nlohmann::json;

// What a case needs beside its tensors.
struct Sample {
  std::map<std::string, Tensor> inputs;
  Json options;
  Shape result;  // its shape in PyTorch's answer

  const Tensor& x() const { return inputs.at("x"); }
  Tensor optional(const std::string& name) const {
    return inputs.contains(name) ? inputs.at(name) : Tensor();
  }
  int option(const std::string& name) const { return options.at(name).get<int>(); }
};

const std::map<std::string, std::function<Tensor(const Sample&)>>& operations() {
  static const std::map<std::string, std::function<Tensor(const Sample&)>> all = {
      {"linear",
       [](const Sample& s) { return nn::linear(s.x(), s.inputs.at("weight"), s.optional("bias")); }},
      {"conv2d",
       [](const Sample& s) {
         return nn::conv2d(s.x(), s.inputs.at("weight"), s.optional("bias"), s.option("stride"),
                           s.option("padding"));
       }},
      {"max_pool2d",
       [](const Sample& s) {
         return nn::max_pool2d(s.x(), s.option("kernel"), s.option("stride"), s.option("padding"));
       }},
      {"avg_pool2d",
       [](const Sample& s) {
         return nn::avg_pool2d(s.x(), s.option("kernel"), s.option("stride"), s.option("padding"));
       }},
      {"adaptive_avg_pool2d",
       [](const Sample& s) { return nn::adaptive_avg_pool2d(s.x(), s.option("height"), s.option("width")); }},
      {"batch_norm",
       [](const Sample& s) {
         const nn::BatchNormState state{s.inputs.at("weight"), s.inputs.at("bias"), s.inputs.at("mean"),
                                        s.inputs.at("var")};
         return nn::batch_norm(s.x(), state, s.option("training") == 1);
       }},
      {"relu", [](const Sample& s) { return nn::relu(s.x()); }},
      {"sigmoid", [](const Sample& s) { return nn::sigmoid(s.x()); }},
      {"gelu", [](const Sample& s) { return nn::gelu(s.x()); }},
      {"silu", [](const Sample& s) { return nn::silu(s.x()); }},
      {"cross_entropy",
       [](const Sample& s) {
         return nn::cross_entropy(s.x(), s.inputs.at("labels"),
                                  s.option("mean") == 1 ? nn::Reduction::mean : nn::Reduction::sum,
                                  s.options.at("smoothing").get<float>());
       }},
      {"add", [](const Sample& s) { return nn::add(s.x(), s.inputs.at("other")); }},
      {"dropout", [](const Sample& s) { return nn::dropout(s.x(), 0, 1, 2); }},
      {"flatten", [](const Sample& s) { return nn::flatten(s.x()); }},
      {"reshape", [](const Sample& s) { return s.x().reshape(s.result); }},
      {"bfloat16", [](const Sample& s) { return nn::cast(s.x(), DType::bfloat16); }},
      {"float", [](const Sample& s) { return nn::cast(s.x(), DType::float32); }},
  };
  return all;
}

std::vector<float> floats(const data::HostTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// `type` is torch's; values of bfloat16 lie in the file as float32.
Tensor on_device(const data::HostTensor& tensor, const std::string& type, const Device& device) {
  if (type == "torch.int64") {
    std::vector<int32_t> values(tensor.bytes.size() / sizeof(int32_t));
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return Tensor::from_host(values, tensor.shape, device);
  }
  const Tensor result = Tensor::from_host(floats(tensor), tensor.shape, device);
  return type == "torch.bfloat16" ? nn::cast(result, DType::bfloat16) : result;
}

class PyTorchSamples : public PyTorchPeer {
 protected:
  void SetUp() override {
    PyTorchPeer::SetUp();
    if (IsSkipped()) return;
    const Outcome found = run_program({"/usr/bin/env", python_, "-c", "import expecttest, numpy"});
    if (found.exit_code != 0) GTEST_SKIP() << python_ << " does not have expecttest and numpy";
  }

  // Ours and theirs differ by roundings of sums of some ten terms, which are no larger than the largest value
  // of the case.
  static void expect_close(const Tensor& ours, const data::HostTensor& theirs, float largest) {
    const std::vector<float> got = nn::cast(ours.detach(), DType::float32).to_host<float>();
    const std::vector<float> want = floats(theirs);
    ASSERT_EQ(ours.shape(), theirs.shape) << theirs.name;
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 2e-6F * largest) << theirs.name << "[" << i << "]";
  }

  static void check(const std::string& prefix, const Json& c,
                    const std::map<std::string, data::HostTensor>& file, const Device& device) {
    Sample sample{.inputs = {}, .options = c.at("options"), .result = file.at(prefix + "y").shape};
    for (const auto& [name, type] : c.at("inputs").items()) {
      Tensor input = on_device(file.at(prefix + name), type.get<std::string>(), device);
      if (file.contains(prefix + "d." + name)) input.set_requires_grad(true);
      sample.inputs.emplace(name, input);
    }
    float largest = 1;
    for (auto at = file.lower_bound(prefix); at != file.end() && at->first.starts_with(prefix); ++at)
      if (at->second.dtype == data::StoredType::f32)
        for (const float value : floats(at->second)) largest = std::max(largest, std::abs(value));

    const Tensor y = operations().at(c.at("op").get<std::string>())(sample);
    expect_close(y, file.at(prefix + "y"), largest);
    if (y.requires_grad())
      backward(y, on_device(file.at(prefix + "dy"), c.at("y").get<std::string>(), device));
    for (const auto& [name, input] : sample.inputs)
      if (file.contains(prefix + "d." + name)) {
        ASSERT_TRUE(input.grad().defined()) << name;
        expect_close(input.grad(), file.at(prefix + "d." + name), largest);
      }
  }
};

TEST_F(PyTorchSamples, GiveWhatPyTorchGivesForwardAndBackward) {
  ASSERT_NO_FATAL_FAILURE(run_python("pytorch_samples.py"));
  std::map<std::string, data::HostTensor> file;
  for (data::HostTensor& tensor : tensors("samples.safetensors")) file.emplace(tensor.name, tensor);
  std::ifstream stream(folder_.path() / "cases.json");
  const Json answer = Json::parse(stream);

  const Device device = make_devices(1)[0];
  std::map<std::string, int> compared;
  size_t number = 0;
  for (const Json& c : answer.at("cases")) {
    SCOPED_TRACE(c.dump());
    check(std::to_string(number++) + ".", c, file, device);
    ++compared[c.at("op").get<std::string>()];
  }
  for (const auto& [name, operation] : operations())
    EXPECT_GT(compared[name], 0) << "PyTorch has no sample of " << name << " any more that can be expressed";
  for (const auto& [name, count] : compared) std::printf("%5d samples of %s compared\n", count, name.c_str());
  for (const auto& [reason, count] : answer.at("left out").items())
    std::printf("%5d left out, %s\n", count.get<int>(), reason.c_str());
}

}  // namespace
}  // namespace lockstep::apps
