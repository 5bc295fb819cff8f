// Ten training steps of the chapter's ResNet-18 against what PyTorch computed in double
// (tests/golden/resnet.py): the losses, all gradients of the first step, the running statistics, and the
// logits in evaluation.
#include <gtest/gtest.h>

#include <cmath>

#include "core/autograd.h"
#include "nn/layers.h"
#include "nn/models/resnet.h"
#include "nn/sgd.h"
#include "tests/golden/formula.h"
#include "tests/golden/golden.h"

namespace lockstep::nn {
namespace {

constexpr int64_t kRows = 16, kSide = 14, kPixels = kRows * kSide * kSide;

class GoldenResNet18 : public testing::Test {
 protected:
  GoldenResNet18() {
    uint32_t stream = 0;
    for (const Parameter& p : net_->named_parameters()) {
      float scale = 0.125F, shift = 0;
      if (p.name.find("bn") != std::string::npos)
        shift = p.name.ends_with("weight") ? 1.0F : 0.0F;
      else if (p.name.ends_with("weight"))
        scale = bound_ =
            static_cast<float>(1 / std::sqrt(static_cast<double>(p.value.size() / p.value.dim(0))));
      else
        scale = bound_;  // a bias follows its weight
      p.value.copy_from(Tensor::from_host(golden::formula_values(stream++, p.value.size(), scale, shift),
                                          p.value.shape(), device_));
    }
    std::vector<int32_t> labels;
    for (int32_t row = 0; row < kRows; ++row) labels.push_back(3 * row % 10);
    y_ = Tensor::from_host(labels, {kRows}, device_);
  }

  // Eight times what PyTorch's own float32 is off from its double (ours has other roundings, and the distance
  // is an estimate), and `share` of the norm.
  void expect_near(const std::string& record, const Tensor& got, double share) {
    const double off = golden::distance(golden::sketch(got.to_host<float>()), golden_.values<double>(record));
    const double norm = golden_.scalar<double>(record + ".norm");
    EXPECT_LE(off, 8 * golden_.scalar<double>(record + ".float32_error") + share * norm)
        << record << ", of norm " << norm;
  }

  golden::GoldenFile golden_{LOCKSTEP_GOLDEN_DIR "/resnet18.golden"};
  Device device_ = make_devices(1)[0];
  std::shared_ptr<Sequential> net_ = resnet18(10, 1, device_);
  float bound_ = 0;
  Tensor x_ =
      Tensor::from_host(golden::formula_values(1002, kPixels, 1.75F), {kRows, kSide, kSide, 1}, device_);
  Tensor y_;
};

TEST_F(GoldenResNet18, TakesTheTenStepsOfPyTorch) {
  Sgd optimizer(net_->parameters(), {.momentum = 0.9F});
  const auto losses = golden_.values<double>("loss");
  ASSERT_EQ(losses.size(), 10U);
  for (size_t step = 0; step < losses.size(); ++step) {
    for (const Tensor& parameter : net_->parameters()) parameter.set_grad(Tensor());
    const Tensor loss = cross_entropy(net_->forward(x_), y_, Reduction::mean);
    backward(loss);
    EXPECT_NEAR(loss.item(), losses[step], 1e-4 * losses[step]) << "step " << step;
    // Within 1.3e-5 where it was tried. (A value that meets a ReLU and rounds to the other side of 0 would
    // change the gradients of all layers before it by some thousandths; these images have none.) The biases
    // before a norm have gradients of nought, where float32 leaves some 1e-7.
    if (step == 0)
      for (const Parameter& p : net_->named_parameters()) expect_near("grad." + p.name, p.value.grad(), 1e-4);
    optimizer.step(1e-5F);
  }
  // Means over the batch, which such a value hardly moves.
  for (const Buffer& buffer : net_->named_buffers()) expect_near("buffer." + buffer.name, buffer.value, 1e-4);
  net_->eval();
  const NoGrad no_grad;
  const std::vector<float> logits = net_->forward(x_).to_host<float>();
  const auto wanted = golden_.values<double>("logits");
  // PyTorch's float32 is off by 6e-6 here, all logits together.
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(logits[i], wanted[i], 1e-4) << "logit " << i;
}

}  // namespace
}  // namespace lockstep::nn
