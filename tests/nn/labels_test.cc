// Labels that are no class of the model: the loss and the gradients of such a row are NaN, never a number
// from other memory, and whoever looks at the loss is told label, row and classes. Run again in checked mode.
#include <gtest/gtest.h>

#include <cmath>

#include "core/autograd.h"
#include "nn/layers.h"
#include "tests/error_of.h"

namespace lockstep::nn {
namespace {

constexpr int64_t kClasses = 10;

Tensor labels_with(int32_t wrong, int64_t rows, std::initializer_list<int64_t> where, const Device& device) {
  std::vector<int32_t> labels(static_cast<size_t>(rows), 3);
  for (const int64_t row : where) labels[static_cast<size_t>(row)] = wrong;
  return Tensor::from_host(labels, {rows}, device);
}

std::string complaint(int32_t label, int64_t row, int device) {
  return "label " + std::to_string(label) + " in row " + std::to_string(row) + " of a batch on device " +
         std::to_string(device) +
         ": the model has 10 outputs: labels must be 0 to 9: mend the labels, or give the model an output "
         "for "
         "every class";
}

class LabelBeyondTheClasses : public testing::TestWithParam<int32_t> {};

TEST_P(LabelBeyondTheClasses, MakesItsRowNaNAndIsNamedWhereTheLossIsLookedAt) {
  for (const Device& device : make_devices(2))
    for (const DType type : {DType::float32, DType::bfloat16})
      for (const float smoothing : {0.0F, 0.1F, 1.0F})
        for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
          Tensor logits = cast(Tensor::zeros({700, kClasses}, device), type);
          logits.set_requires_grad(true);
          const Tensor loss = cross_entropy(logits, labels_with(GetParam(), 700, {5, 699, 400}, device),
                                            reduction, smoothing);
          backward(loss);
          EXPECT_EQ(error_of([&] { loss.item(); }), complaint(GetParam(), 5, device.index()));
          EXPECT_TRUE(std::isnan(loss.item())) << "the fault is told once";
          const std::vector<float> gradient = cast(logits.grad(), DType::float32).to_host<float>();
          for (size_t i = 0; i < gradient.size(); ++i) {
            const size_t row = i / kClasses;
            EXPECT_EQ(std::isnan(gradient[i]), row == 5 || row == 699 || row == 400) << "row " << row;
          }
        }
}

TEST_P(LabelBeyondTheClasses, IsFoundInALossThatWasMovedToAnotherDevice) {
  const std::vector<Device> devices = make_devices(2);
  const Tensor loss = cross_entropy(Tensor::zeros({4, kClasses}, devices[1]),
                                    labels_with(GetParam(), 4, {2}, devices[1]), Reduction::sum);
  EXPECT_EQ(error_of([&] { loss.copy_to(devices[0]).item(); }), complaint(GetParam(), 2, 1));
}

INSTANTIATE_TEST_SUITE_P(Labels, LabelBeyondTheClasses,
                         testing::Values(-1, 10, 255, 1000000000, INT32_MIN, INT32_MAX));

TEST(Labels, AnotherNaNIsNoFaultOfTheirs) {
  const Device device = make_devices(1)[0];
  const Tensor logits = Tensor::from_host(std::vector<float>(10, NAN), {1, kClasses}, device);
  EXPECT_TRUE(std::isnan(cross_entropy(logits, labels_with(3, 1, {}, device), Reduction::sum).item()));
}

TEST(Labels, OfAnotherTypeAreRefused) {
  const Device device = make_devices(1)[0];
  const Tensor logits = Tensor::zeros({3, kClasses}, device);
  EXPECT_EQ(error_of([&] { cross_entropy(logits, Tensor::zeros({3}, device), Reduction::sum); }),
            "cross_entropy: labels of type float32: use int32, the number of each row's class");
  EXPECT_EQ(
      error_of([&] { cross_entropy(logits, Tensor::zeros({3}, device, DType::uint8), Reduction::sum); }),
      "cross_entropy: labels of type uint8: use int32, the number of each row's class");
  EXPECT_EQ(error_of([&] {
              cross_entropy(Tensor::zeros({3, 0}, device), Tensor::zeros({3}, device, DType::int32),
                            Reduction::sum);
            }),
            "cross_entropy: logits of shape [3, 0] have no classes");
}

}  // namespace
}  // namespace lockstep::nn
