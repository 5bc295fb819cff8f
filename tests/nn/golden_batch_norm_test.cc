// Batch norm, alone and with what is fused into it, against PyTorch's BatchNorm2d in double
// (tests/golden/batch_norm.py): two steps in training, one in evaluation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/autograd.h"
#include "nn/layers.h"
#include "tests/golden/golden.h"

namespace lockstep::nn {
namespace {

class GoldenBatchNorm : public testing::TestWithParam<const char*> {
 protected:
  Tensor whole(const std::string& record) const {
    return Tensor::from_host(golden_.values<float>(record), golden_.shape(record), device_);
  }

  // Step `step` of a record that holds them all.
  Tensor input(const std::string& record, int64_t step) const {
    const Tensor all = whole(record);
    const Shape shape(all.shape().begin() + 1, all.shape().end());
    Tensor one = all.slice(step, step + 1).reshape(shape).copy_to(device_);
    return one.set_requires_grad(record != "dy");
  }

  void expect_step(const std::string& record, int64_t step, const Tensor& got) const {
    const auto all = golden_.values<double>(record);
    const std::vector<float> values = got.to_host<float>();
    const size_t begin = static_cast<size_t>(step) * values.size();
    ASSERT_LE(begin + values.size(), all.size()) << record;
    double largest = 0;
    for (const double value : all) largest = std::max(largest, std::abs(value));
    // PyTorch's float32 is off from its double by float32_error; ours rounds in other places: four times as
    // much, and 16 roundings of the largest value where PyTorch was lucky.
    const double tolerance = 4 * golden_.scalar<double>(record + ".float32_error") + 16 * 6e-8 * largest;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], all[begin + i], tolerance) << record << ", step " << step << ", element " << i;
  }

  golden::GoldenFile golden_{LOCKSTEP_GOLDEN_DIR "/batch_norm.golden"};
  Device device_ = make_devices(1)[0];
};

TEST_P(GoldenBatchNorm, GivesTheOutputsGradientsAndRunningStatisticsOfPyTorch) {
  const std::string recipe = GetParam();
  const BatchNormState state{whole("weight").set_requires_grad(true), whole("bias").set_requires_grad(true),
                             whole("running_mean"), whole("running_var")};
  for (int64_t step = 0; step < 3; ++step) {
    state.weight.set_grad(Tensor());
    state.bias.set_grad(Tensor());
    const Tensor x = input("x", step), addend = recipe == "add" ? input("addend", step) : Tensor();
    const Tensor y =
        batch_norm(x, state, step < 2, recipe == "norm" ? Activation::none : Activation::relu, addend);
    backward(y, input("dy", step));
    expect_step(recipe + ".y", step, y);
    expect_step(recipe + ".dx", step, x.grad());
    expect_step(recipe + ".dweight", step, state.weight.grad());
    expect_step(recipe + ".dbias", step, state.bias.grad());
    if (recipe == "add") expect_step("add.daddend", step, addend.grad());
    expect_step("running_mean.after", step, state.running_mean);
    expect_step("running_var.after", step, state.running_var);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, GoldenBatchNorm, testing::Values("norm", "relu", "add"),
                         [](const auto& recipe) { return std::string(recipe.param); });

}  // namespace
}  // namespace lockstep::nn
