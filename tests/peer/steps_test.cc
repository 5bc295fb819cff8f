// Ten training steps of the chapter's ResNet-18 from the weights that PyTorch itself draws, against those
// that PyTorch takes (in double): the losses, all gradients of the first step, and the running statistics.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "apps/common/models.h"
#include "apps/common/pytorch_names.h"
#include "core/autograd.h"
#include "nn/io/pytorch.h"
#include "nn/layers.h"
#include "nn/sgd.h"
#include "tests/peer/pytorch_peer.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kRows = 16, kSide = 14;
constexpr unsigned kSeed = 7;

// |a - b| / |b|, or |a| where b is nought to rounding.
double relative_distance(const Tensor& a, const Tensor& b) {
  const std::vector<float> left = a.to_host<float>(), right = b.to_host<float>();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    difference += std::pow(static_cast<double>(left[i]) - right[i], 2);
    norm += std::pow(static_cast<double>(right[i]), 2);
  }
  // The bias before a norm has no gradient: float32 leaves some 1e-7 of it.
  return std::sqrt(difference) / (norm > 1e-20 ? std::sqrt(norm) : 1);
}

TEST_F(PyTorchPeer, TakesTenStepsFromItsOwnWeightsAsWeDo) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const Device device = make_devices(1)[0];
  std::mt19937 random(kSeed);
  const Tensor x = images(kRows, kSide, random, device);
  std::vector<int32_t> labels;
  for (int32_t row = 0; row < kRows; ++row) labels.push_back(3 * row % 10);
  const Tensor y = Tensor::from_host(labels, {kRows}, device);

  ASSERT_NO_FATAL_FAILURE(run_python("pytorch_steps.py"));
  const Model model = named_model({{"model", "resnet18"}});
  const nn::PyTorchNames names = pytorch_names(model.description);
  const auto net = model.make(device);
  const auto expected = model.make(device);  // holds gradients, and buffers after ten steps
  nn::load_pytorch_state_dict(*net, names, tensors("start.safetensors"), "start.safetensors");
  std::vector<data::HostTensor> state = tensors("expected.safetensors");
  std::erase_if(state, [](const data::HostTensor& tensor) { return tensor.name == "loss"; });
  nn::load_pytorch_state_dict(*expected, names, state, "expected.safetensors");
  const std::vector<float> losses = values("expected.safetensors", "loss");
  ASSERT_EQ(losses.size(), 10U);

  const std::vector<nn::Parameter> gradients = expected->named_parameters();
  nn::Sgd optimizer(net->parameters(), {.momentum = 0.9F});
  for (size_t step = 0; step < losses.size(); ++step) {
    for (const Tensor& parameter : net->parameters()) parameter.set_grad(Tensor());
    const Tensor loss = nn::cross_entropy(net->forward(x), y, nn::Reduction::mean);
    backward(loss);
    EXPECT_NEAR(loss.item(), losses[step], 1e-4 * losses[step]) << "step " << step;
    // Within 1e-5 where it was tried. Two million values meet a ReLU: one of them on the other side of 0
    // would change the gradients of the layers before it by some thousandths.
    for (size_t p = 0; step == 0 && p < gradients.size(); ++p)
      EXPECT_LE(relative_distance(net->parameters()[p].grad(), gradients[p].value), 1e-4)
          << gradients[p].name;
    optimizer.step(1e-5F);
  }
  const std::vector<nn::Buffer> buffers = net->named_buffers(), wanted = expected->named_buffers();
  for (size_t b = 0; b < buffers.size(); ++b)
    EXPECT_LE(relative_distance(buffers[b].value, wanted[b].value), 1e-4) << buffers[b].name;
}

}  // namespace
}  // namespace lockstep::apps
