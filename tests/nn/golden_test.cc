// Whole LeNet steps against what PyTorch computed in double (tests/golden/lenet.py): logits, loss, every
// gradient, and the weights after three steps, for all variants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>

#include "core/autograd.h"
#include "kernels/gather.h"
#include "nn/layers.h"
#include "nn/models/lenet.h"
#include "nn/sgd.h"
#include "tests/golden/golden.h"

namespace lockstep::nn {
namespace {

struct Variant {
  LeNet model;
  const char* name;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

class GoldenLeNet : public testing::TestWithParam<Variant> {
 protected:
  GoldenLeNet()
      : golden_(std::string(LOCKSTEP_GOLDEN_DIR "/lenet_") + GetParam().name + ".golden"),
        device_(make_devices(1)[0]),
        net_(lenet(GetParam().model, device_)) {
    for (const Parameter& p : net_->named_parameters()) {
      const Shape shape = p.value.shape();
      EXPECT_EQ(shape, golden_.shape("init." + p.name)) << p.name;
      p.value.copy_from(Tensor::from_host(golden_.values<float>("init." + p.name), shape, device_));
      Tensor(p.value).set_requires_grad(true);
    }
    load_batch();
  }

  void load_batch() {
    const auto images = golden_.values<uint8_t>("images"), labels = golden_.values<uint8_t>("labels");
    rows_ = static_cast<int64_t>(labels.size());
    std::vector<int32_t> order(labels.size());
    std::iota(order.begin(), order.end(), 0);
    const Tensor image_bytes = Tensor::from_host(images, golden_.shape("images"), device_);
    const Tensor label_bytes = Tensor::from_host(labels, {rows_}, device_);
    const Tensor rows = Tensor::from_host(order, {rows_}, device_);
    x_ = Tensor::empty({rows_, 28, 28, 1}, device_);
    y_ = Tensor::empty({rows_}, device_, DType::int32);
    const DeviceGuard guard(device_);
    kernels::gather_batch(image_bytes.data<uint8_t>(), label_bytes.data<uint8_t>(), rows.data<int32_t>(),
                          rows_, 28 * 28, golden_.scalar<float>("mean"), golden_.scalar<float>("stddev"),
                          x_.data<float>(), y_.data<int32_t>(), device_.stream());
  }

  // One forward and backward pass; returns the loss. The gradients lie in the parameters.
  double loss_and_gradients(Reduction reduction) {
    for (const Tensor& parameter : net_->parameters()) parameter.set_grad(Tensor());
    const Tensor loss = cross_entropy(net_->forward(x_), y_, reduction);
    backward(loss);
    return loss.item();
  }

  // PyTorch's own float32 is off from its double by float32_error. Ours sums in other orders, so it may be
  // off four times as far; the floor is for small arrays, where PyTorch's error may be nought by luck: 16
  // roundings of the largest value.
  double tolerance(const std::string& record, double largest) const {
    return 4 * golden_.scalar<double>(record + ".float32_error") + 16 * 6e-8 * largest;
  }

  void expect_record(const std::string& record, const std::vector<float>& got, double factor = 1) {
    const auto wanted = golden_.values<float>(record);
    ASSERT_EQ(got.size(), wanted.size()) << record;
    double largest = 0, off = 0;
    size_t worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max<double>(largest, std::abs(wanted[i]));
      const double difference = std::abs(got[i] * factor - wanted[i]);
      if (!(difference <= off)) off = difference, worst = i;  // a NaN counts as worst
    }
    EXPECT_LE(off, tolerance(record, largest))
        << record << "[" << worst << "]: got " << got[worst] * factor << ", wanted " << wanted[worst];
  }

  void expect_loss(double got, double wanted) {
    // The loss is a sum of eight float32 logarithms: some thirty roundings of its own size (seen: up to
    // five).
    EXPECT_NEAR(got, wanted, 2e-6 * wanted);
  }

  // Three steps on the batch; `reduction` and the gradient's scale make up for each other.
  void train(const std::string& recipe, const SgdOptions& options, float learning_rate, Reduction reduction) {
    const float scale = reduction == Reduction::sum ? 1.0f / static_cast<float>(rows_) : 1.0f;
    Sgd optimizer(net_->parameters(), options);
    for (const double wanted : golden_.values<double>(recipe + ".loss")) {
      expect_loss(loss_and_gradients(reduction) * scale, wanted);
      optimizer.step(learning_rate, scale);
    }
    for (const Parameter& p : net_->named_parameters())
      expect_record(recipe + "." + p.name, p.value.to_host<float>());
  }

  golden::GoldenFile golden_;
  Device device_;
  std::shared_ptr<Sequential> net_;
  Tensor x_, y_;
  int64_t rows_ = 0;
};

TEST_P(GoldenLeNet, GivesTheLogitsOfPyTorch) {
  expect_record("logits", net_->forward(x_).to_host<float>());
}

TEST_P(GoldenLeNet, GivesTheMeanLossAndItsGradients) {
  expect_loss(loss_and_gradients(Reduction::mean), golden_.scalar<double>("loss.mean"));
  for (const Parameter& p : net_->named_parameters())
    expect_record("grad." + p.name, p.value.grad().to_host<float>());
}

TEST_P(GoldenLeNet, GivesTheSummedLossAndItsGradients) {
  expect_loss(loss_and_gradients(Reduction::sum), golden_.scalar<double>("loss.sum"));
  for (const Parameter& p : net_->named_parameters())
    expect_record("grad." + p.name, p.value.grad().to_host<float>(), 1.0 / static_cast<double>(rows_));
}

TEST_P(GoldenLeNet, ReachesTheWeightsAfterThreePlainSteps) {
  train("plain", {}, 0.1F, Reduction::mean);
}

TEST_P(GoldenLeNet, ReachesTheWeightsAfterThreeNesterovStepsWithWeightDecay) {
  train("nesterov", {.momentum = 0.9F, .weight_decay = 5e-4F, .nesterov = true}, 0.05F, Reduction::sum);
}

INSTANTIATE_TEST_SUITE_P(Variants, GoldenLeNet,
                         testing::Values(Variant{LeNet::article, "article"},
                                         Variant{LeNet::chapter, "chapter"},
                                         Variant{LeNet::classic, "classic"}),
                         [](const auto& variant) { return std::string(variant.param.name); });

}  // namespace
}  // namespace lockstep::nn
