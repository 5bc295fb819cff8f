// A model and data that do not fit each other, through the trainer: labels that are no class are named where
// losses and counts are read, and too few outputs before the first step.
#include <gtest/gtest.h>

#include <numeric>

#include "nn/init.h"
#include "nn/layers.h"
#include "nn/sgd.h"
#include "parallel/evaluate.h"
#include "parallel/replicas.h"
#include "parallel/trainer.h"
#include "tests/error_of.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kRows = 13;

std::shared_ptr<nn::Module> linear_net(int64_t outputs, const Device& device) {
  auto net = std::make_shared<nn::Sequential>();
  net->add(std::make_shared<nn::Flatten>()).add(std::make_shared<nn::Linear>(4, outputs, device));
  nn::initialise(*net, nn::Init::kaiming, 1);
  return net;
}

// A trainer of a model with `outputs` outputs on k devices, and data that have the given labels.
struct Training {
  std::vector<Device> devices;
  std::vector<data::DeviceData> data;
  Trainer trainer;

  Training(int k, int64_t outputs, const std::vector<uint8_t>& labels)
      : devices(make_devices(k)),
        trainer([outputs](const Device& device) { return linear_net(outputs, device); }, devices,
                {.make_optimizer = [](std::vector<Tensor> parameters) {
                  return std::make_unique<nn::Sgd>(std::move(parameters), nn::SgdOptions{});
                }}) {
    std::vector<int32_t> order(labels.size());
    std::iota(order.begin(), order.end(), 0);
    for (const Device& device : devices) {
      data.emplace_back(std::vector<uint8_t>(4 * labels.size(), 100), labels, 2, 2,
                        data::Normalisation{0.5F, 0.3F}, device);
      data.back().set_order(order);
    }
  }

  // Shards of the first kRows rows; `forget`: nobody told how many classes there are.
  std::vector<data::LabelledBatch> shards(bool forget = false) const {
    std::vector<data::LabelledBatch> all;
    int64_t begin = 0;
    const std::vector<int64_t> sizes = split_sizes(kRows, static_cast<int>(devices.size()));
    for (size_t r = 0; r < devices.size(); ++r) {
      all.push_back(data[r].batch(begin, sizes[r]));
      if (forget) all.back().classes = 0;
      begin += sizes[r];
    }
    return all;
  }
};

std::vector<uint8_t> labels_up_to(uint8_t largest) {
  std::vector<uint8_t> labels(kRows, 1);
  labels.back() = largest;
  return labels;
}

TEST(Labels, OfMoreClassesThanTheModelHasOutputsAreRefusedBeforeTheFirstStep) {
  for (const int k : {1, 2}) {
    Training training(k, 5, labels_up_to(9));
    const std::vector<float> before = training.trainer.net().module().parameters()[0].to_host<float>();
    const std::string wanted =
        "the model has 5 outputs, but the data have 10 classes: give it an output for each class";
    EXPECT_EQ(error_of([&] { training.trainer.step(training.shards(), 0.1F); }), wanted);
    EXPECT_EQ(error_of([&] { count_correct(training.trainer.net(), training.data, kRows, 5); }), wanted);
    EXPECT_EQ(training.trainer.net().module().parameters()[0].to_host<float>(), before);
    EXPECT_TRUE(training.trainer.report().losses.empty());
  }
}

TEST(Labels, OfFewerClassesThanTheModelHasOutputsAreFine) {
  Training training(2, 5, labels_up_to(3));
  training.trainer.step(training.shards(), 0.1F);
  EXPECT_EQ(training.trainer.report().losses.size(), 1U);
}

TEST(Labels, ThatAreNoClassAreNamedInTheTrainersReport) {
  for (const int k : {1, 2})
    for (const int wrong : {-1, 5, 255, 1000000000}) {
      Training training(k, 5, labels_up_to(4));
      std::vector<data::LabelledBatch> shards = training.shards(true);
      const Tensor& y = shards.back().y;
      const int64_t last = y.dim(0) - 1;
      y.slice(last, last + 1).copy_from(Tensor::from_host(std::vector<int32_t>{wrong}, {1}, y.device()));
      training.trainer.step(shards, 0.1F);
      EXPECT_EQ(error_of([&] { training.trainer.report(); }),
                "label " + std::to_string(wrong) + " in row " + std::to_string(last) +
                    " of a batch on device " + std::to_string(k - 1) +
                    ": the model has 5 outputs: labels must be 0 to 4: mend the labels, or give the model an "
                    "output for every class");
    }
}

}  // namespace
}  // namespace lockstep::parallel
