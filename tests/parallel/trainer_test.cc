// Whole training steps of LeNet on k devices: against one device, against themselves, and without allocation.
#include "parallel/trainer.h"
#include "parallel/evaluate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>

#include "core/pool.h"
#include "kernels/check.h"
#include "nn/adam.h"
#include "nn/init.h"
#include "nn/io/state_dict.h"
#include "nn/layers.h"
#include "nn/models/lenet.h"
#include "nn/sgd.h"
#include "parallel/replicas.h"
#include "tests/error_of.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kRows = 29;  // prime: every k gives uneven shards
constexpr float kLearningRate = 0.05F;
constexpr nn::SgdOptions kOptions{.momentum = 0.9F, .weight_decay = 5e-4F, .nesterov = true};

TrainerSettings with_sgd(collective::Algorithm algorithm = collective::ring) {
  return {.make_optimizer =
              [](std::vector<Tensor> parameters) {
                return std::make_unique<nn::Sgd>(std::move(parameters), kOptions);
              },
          .algorithm = algorithm};
}

// Random images with random labels, on every device, in order.
std::vector<data::DeviceData> random_data(const std::vector<Device>& devices) {
  std::mt19937 generator(11);
  std::vector<uint8_t> images(kRows * 784), labels(kRows);
  for (uint8_t& pixel : images) pixel = static_cast<uint8_t>(generator() % 256);
  for (uint8_t& label : labels) label = static_cast<uint8_t>(generator() % 10);
  std::vector<int32_t> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  std::vector<data::DeviceData> data;
  for (const Device& device : devices) {
    data.emplace_back(images, labels, 28, 28, data::Normalisation{0.5F, 0.3F}, device);
    data.back().set_order(order);
  }
  return data;
}

struct Training {
  std::vector<Device> devices;
  std::vector<data::DeviceData> data;
  Trainer trainer;

  explicit Training(int k, nn::LeNet variant = nn::LeNet::article,
                    const TrainerSettings& settings = with_sgd())
      : devices(make_devices(k)),
        data(random_data(devices)),
        trainer([variant](const Device& device) { return nn::lenet(variant, device); }, devices, settings) {
    nn::initialise(trainer.net().module(), nn::Init::kaiming, 5);
    trainer.net().broadcast();
  }

  // Rows [begin, begin + rows), a shard per device.
  std::vector<data::LabelledBatch> shards(int64_t begin, int64_t rows) const {
    std::vector<data::LabelledBatch> shards;
    const std::vector<int64_t> sizes = split_sizes(rows, static_cast<int>(devices.size()));
    for (size_t r = 0; r < devices.size(); ++r) {
      shards.push_back(data[r].batch(begin, sizes[r]));
      begin += sizes[r];
    }
    return shards;
  }

  // A step on the first `rows` rows.
  void step(int64_t rows = kRows, float learning_rate = kLearningRate) {
    trainer.step(shards(0, rows), learning_rate);
  }

  // A step on batches of these sizes, from row 0 on.
  void accumulated_step(const std::vector<int64_t>& parts) {
    int64_t begin = 0;
    for (size_t i = 0; i + 1 < parts.size(); begin += parts[i++]) trainer.accumulate(shards(begin, parts[i]));
    trainer.step(shards(begin, parts.back()), kLearningRate);
  }

  std::vector<std::vector<float>> weights(size_t replica = 0) const {
    std::vector<std::vector<float>> values;
    for (const Tensor& parameter : trainer.replicas()[replica]->parameters())
      values.push_back(parameter.to_host<float>());
    return values;
  }
};

class StepOnDevices : public testing::TestWithParam<nn::LeNet> {};

TEST_P(StepOnDevices, DiffersFromOneDeviceByRoundingOnly) {
  Training one(1, GetParam());
  one.step();
  const auto expected = one.weights();
  double largest = 0;
  for (const auto& values : expected)
    for (const float value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (int k = 2; k <= 8; ++k) {
    Training many(k, GetParam());
    many.step();
    const auto weights = many.weights();
    double difference = 0;
    for (size_t p = 0; p < weights.size(); ++p)
      for (size_t i = 0; i < weights[p].size(); ++i)
        difference = std::max(difference, std::abs(static_cast<double>(weights[p][i]) - expected[p][i]));
    EXPECT_LE(difference, 1e-6 * largest) << k << " devices";
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, StepOnDevices,
                         testing::Values(nn::LeNet::article, nn::LeNet::chapter, nn::LeNet::classic));

TEST(Trainer, KeepsAllReplicasBitwiseEqual) {
  for (const auto& [name, algorithm, in_chunks] : collective::algorithms()) {
    for (const int k : {2, 3, 5, 8}) {
      Training training(k, nn::LeNet::article, with_sgd(algorithm));
      for (int i = 0; i < 3; ++i) training.step();
      for (size_t r = 1; r < static_cast<size_t>(k); ++r)
        ASSERT_EQ(training.weights(r), training.weights(0)) << "replica " << r << " of " << k;
    }
  }
}

TEST(Trainer, GivesTheSameBitsOnEveryRun) {
  const auto run = [](int k) {
    Training training(k);
    for (int i = 0; i < 3; ++i) training.step();
    return training.weights();
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_EQ(run(3), run(3));
}

TEST(Trainer, TakesBatchesWithFewerRowsThanDevices) {
  Training few(5), one(1);
  few.step(2);
  one.step(2);
  for (size_t r = 1; r < 5; ++r) EXPECT_EQ(few.weights(r), few.weights(0));
  const StepReport report = few.trainer.report();
  EXPECT_EQ(report.rows, 2);
  // One loss is the sum of two rows on one device, the other of two devices: a rounding or two apart.
  EXPECT_NEAR(report.losses.at(0), one.trainer.report().losses.at(0), 1e-5);
}

TEST(Trainer, KeepsAllReplicasBitwiseEqualWithAdamWSmoothingAndClipping) {
  TrainerSettings settings{.make_optimizer =
                               [](std::vector<Tensor> parameters) {
                                 return std::make_unique<nn::Adam>(
                                     std::move(parameters),
                                     nn::AdamOptions{.weight_decay = 0.01F, .decoupled = true},
                                     nn::DecayOn::weights);
                               },
                           .label_smoothing = 0.1F,
                           .max_gradient_norm = 0.05F};
  Training training(3, nn::LeNet::article, settings);
  for (int i = 0; i < 3; ++i) training.step();
  for (size_t r = 1; r < 3; ++r) EXPECT_EQ(training.weights(r), training.weights(0)) << "replica " << r;
}

TEST(Trainer, ClipsTheMeanGradientAndSmoothsTheLabels) {
  constexpr float kLimit = 0.01F, kRate = 1;
  TrainerSettings settings{.make_optimizer =
                               [](std::vector<Tensor> parameters) {
                                 return std::make_unique<nn::Sgd>(std::move(parameters), nn::SgdOptions{});
                               },
                           .label_smoothing = 0.5F,
                           .max_gradient_norm = kLimit};
  Training training(2, nn::LeNet::article, settings);
  const auto before = training.weights();
  const data::LabelledBatch batch = training.data[0].batch(0, kRows);
  const double loss =
      nn::cross_entropy(training.trainer.replicas()[0]->forward(batch.x), batch.y, nn::Reduction::mean, 0.5F)
          .item();
  training.step(kRows, kRate);
  // The same sums in two shards: a few roundings of 29 losses apart.
  EXPECT_NEAR(training.trainer.report().losses.at(0), loss, 1e-5 * loss);
  const auto after = training.weights();
  double squares = 0;
  for (size_t p = 0; p < after.size(); ++p)
    for (size_t i = 0; i < after[p].size(); ++i) {
      const double move = static_cast<double>(after[p][i]) - before[p][i];
      squares += move * move;
    }
  // The step is as long as the limit, but for roundings of 44426 weights below 1/2 by 3e-8 each, which add up
  // to sqrt(44426) * 3e-8 at most where the move is across them, and the 1e-6 beside a norm above 0.1.
  EXPECT_NEAR(std::sqrt(squares), kLimit, 2e-5 * kLimit + 7e-6);
}

TEST(Trainer, ReportsTheMeanLossOfEveryStepAndCountsRows) {
  Training training(2);
  const data::LabelledBatch batch = training.data[0].batch(0, kRows);
  const double expected =
      nn::cross_entropy(training.trainer.replicas()[0]->forward(batch.x), batch.y, nn::Reduction::mean)
          .item();
  for (int i = 0; i < 5; ++i) training.step();
  const StepReport report = training.trainer.report();
  ASSERT_EQ(report.losses.size(), 5U);
  EXPECT_EQ(report.rows, 5 * kRows);
  EXPECT_GE(report.correct, 0);
  EXPECT_LE(report.correct, report.rows);
  EXPECT_GT(report.allreduce_seconds, 0);
  // Two shards' sums against one mean: a few roundings of 29 losses apart.
  EXPECT_NEAR(report.losses[0], expected, 1e-5 * expected);
  // The same rows again and again are learnt by heart.
  EXPECT_LT(report.losses[4], report.losses[0]);
  EXPECT_TRUE(training.trainer.report().losses.empty());
}

// Parts of a step, as numbers of rows: what they make must not depend on them.
TEST(Trainer, AccumulatedBatchesAreOneStepOnAllTheirRows) {
  for (int k = 1; k <= 3; ++k) {
    Training whole(k);
    for (int i = 0; i < 2; ++i) whole.step();
    const auto expected = whole.weights();
    const StepReport wanted = whole.trainer.report();
    double largest = 0;
    for (const auto& values : expected)
      for (const float value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
    for (const std::vector<int64_t>& parts : std::vector<std::vector<int64_t>>{
             {kRows - 8, 8}, {10, 10, kRows - 20}, {kRows - 1, 1}, {1, 1, kRows - 2}}) {
      Training training(k);
      for (int i = 0; i < 2; ++i) training.accumulated_step(parts);
      for (int r = 1; r < k; ++r)
        EXPECT_EQ(training.weights(static_cast<size_t>(r)), training.weights(0)) << "replica " << r;
      const auto weights = training.weights();
      double difference = 0;
      for (size_t p = 0; p < weights.size(); ++p)
        for (size_t i = 0; i < weights[p].size(); ++i)
          difference = std::max(difference, std::abs(static_cast<double>(weights[p][i]) - expected[p][i]));
      // Two steps, each as far apart as one on another number of devices.
      EXPECT_LE(difference, 2e-6 * largest) << k << " devices, " << parts.size() << " parts";
      const StepReport report = training.trainer.report();
      ASSERT_EQ(report.losses.size(), 2U);
      for (size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(report.losses[i], wanted.losses[i], 1e-5 * wanted.losses[i]) << "step " << i;
      EXPECT_EQ(report.rows, 2 * kRows);
      EXPECT_EQ(report.correct, wanted.correct);
    }
  }
}

TEST(Trainer, HasNoReportInTheMiddleOfAStep) {
  Training training(2);
  training.trainer.accumulate(training.shards(0, 4));
  EXPECT_EQ(error_of([&] { training.trainer.report(); }),
            "Trainer: asked for a report in the middle of a step, of which 4 rows are done: step() ends it");
  training.trainer.step(training.shards(4, 4), 0.1F);
  EXPECT_EQ(training.trainer.report().losses.size(), 1U);
}

TEST(Trainer, AccumulatesMoreBatchesThanItHasSlotsFor) {
  Training training(1);
  training.accumulated_step(std::vector<int64_t>(kRows, 1));
  for (int i = 0; i < 1024; ++i) training.step(1);
  training.accumulated_step({1, 1});
  EXPECT_EQ(training.trainer.report().losses.size(), 1026U);
}

TEST(Trainer, ReportsMoreStepsThanItHasSlotsFor) {
  Training training(1);
  for (int i = 0; i < 1100; ++i) training.step(1);
  EXPECT_EQ(training.trainer.report().losses.size(), 1100U);
}

TEST(Trainer, AllocatesNothingAfterTheSecondStep) {
  Training training(3);
  training.step();
  training.step();
  const auto statistics = [&] {
    std::vector<size_t> figures;
    for (const Device& device : training.devices) {
      figures.push_back(device.pool().statistics().peak);
      figures.push_back(device.pool().statistics().reserved);
    }
    return figures;
  };
  const auto before = statistics();
  for (int i = 0; i < 20; ++i) training.step();
  training.trainer.report();
  EXPECT_EQ(statistics(), before);
}

// Bytes of this process that are in memory.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Trainer, LeavesTheProcessesMemoryAsItIs) {
  Training training(2);
  for (int i = 0; i < 100; ++i) training.step();
  training.trainer.report();
  const int64_t before = resident_bytes();
  for (int i = 0; i < 400; ++i) training.step();
  training.trainer.report();
  // 400 steps that left one allocation of a page each would show; a stack or an arena may still grow a
  // little.
  EXPECT_LE(resident_bytes() - before, 1 << 20);
}

TEST(CountCorrect, CountsEveryRowOnce) {
  Training training(1);
  const auto right = count_correct(training.trainer.net(), training.data, kRows, 8);
  EXPECT_EQ(count_correct(training.trainer.net(), training.data, kRows, kRows), right);
  EXPECT_LE(right, kRows);
}

TEST(CountCorrect, GivesTheSameCountOnEveryNumberOfDevices) {
  Training one(1);
  const auto right = count_correct(one.trainer.net(), one.data, kRows, 4);
  EXPECT_GT(right, 0);
  for (int k = 2; k <= 8; ++k) {  // 8 batches: on 7 devices one has two of them
    Training many(k);
    EXPECT_EQ(count_correct(many.trainer.net(), many.data, kRows, 4), right) << k << " devices";
  }
}

// Counts its calls, and says class 0.
class Calls : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override {
    ++calls_;
    return Tensor::zeros({x.dim(0), 10}, x.device());
  }
  std::string describe() const override { return "Calls"; }
  int calls_ = 0;
};

TEST(CountCorrect, DealsBatchesOutToAllReplicas) {
  const std::vector<Device> devices = make_devices(3);
  std::vector<std::shared_ptr<Calls>> replicas;
  const DataParallel net([&](const Device&) { return replicas.emplace_back(std::make_shared<Calls>()); },
                         devices);
  count_correct(net, random_data(devices), kRows, 4);  // 8 batches
  EXPECT_EQ(replicas[0]->calls_, 3);
  EXPECT_EQ(replicas[1]->calls_, 3);
  EXPECT_EQ(replicas[2]->calls_, 2);
}

TEST(CountCorrect, EndsWithoutACountWhereItsWatchSaysSo) {
  Training training(2);
  std::vector<int64_t> seen;
  const auto watch = [&seen](int64_t rows) {
    seen.push_back(rows);
    return rows < 12;
  };
  EXPECT_EQ(count_correct(training.trainer.net(), training.data, kRows, 4, watch), std::nullopt);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 4, 8, 12}));
}

// Says class 0, but for one image of which nothing can be said.
class OneNaN : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override {
    std::vector<float> outputs(static_cast<size_t>(x.dim(0)) * 10, 0.0F);
    for (int64_t row = 0; row < x.dim(0); ++row)
      if (rows_++ == 13) outputs[static_cast<size_t>(row) * 10 + 9] = std::numeric_limits<float>::quiet_NaN();
    return Tensor::from_host(outputs, {x.dim(0), 10}, x.device());
  }
  std::string describe() const override { return "OneNaN"; }
  int64_t rows_ = 0;
};

TEST(CountCorrect, NamesAnImageThatHasNoLargestOutput) {
  const std::vector<Device> devices = make_devices(1);
  const DataParallel net([](const Device&) { return std::make_shared<OneNaN>(); }, devices);
  EXPECT_EQ(error_of([&] { count_correct(net, random_data(devices), kRows, 4); }),
            "the model's outputs for image 13 are NaN or infinite");
}

TEST(Trainer, FindsWhatIsNoNumberInWeightsAndOptimizersAndStatistics) {
  const auto make = [](const Device& device) {
    auto net = std::make_shared<nn::Sequential>();
    net->add<nn::BatchNorm2d>("norm", 1, device)
        .add<nn::Flatten>("flat")
        .add<nn::Linear>("fc", 784, 10, device);
    return net;
  };
  Trainer trainer(make, make_devices(2), {.make_optimizer = [](std::vector<Tensor> parameters) {
                    return std::make_unique<nn::Sgd>(std::move(parameters), nn::SgdOptions{.momentum = 0.9F});
                  }});
  EXPECT_EQ(trainer.first_not_finite(), std::nullopt);
  const auto spoil = [&trainer](const Tensor& tensor, const std::string& want) {
    const Tensor before = tensor.copy_to(tensor.device());
    std::vector<float> values = tensor.to_host<float>();
    values.back() = std::numeric_limits<float>::infinity();
    tensor.copy_from(Tensor::from_host(values, tensor.shape(), tensor.device()));
    EXPECT_EQ(trainer.first_not_finite(), want);
    tensor.copy_from(before);
    EXPECT_EQ(trainer.first_not_finite(), std::nullopt);
  };
  const auto names = nn::parameter_names(trainer.net().module());
  spoil(trainer.net().module().parameters()[2], "1 of the 7840 values of fc.weight are NaN or infinite");
  spoil(std::get<Tensor>(trainer.optimizers().optimizers()[0]->entries(names)[3].value),
        "1 of the 10 values of fc.bias.velocity are NaN or infinite");
  spoil(trainer.replicas()[1]->named_buffers()[1].value,
        "1 of the 1 values of norm.running_var are NaN or infinite");
}

TEST(CountCorrect, EvaluatesWhateverTheModelsMode) {
  const std::vector<Device> devices = make_devices(1);
  const DataParallel net(
      [](const Device& device) {
        auto made = std::make_shared<nn::Sequential>();
        made->add(std::make_shared<nn::BatchNorm2d>(1, device));
        made->add(std::make_shared<nn::Flatten>()).add(std::make_shared<nn::Linear>(784, 10, device));
        return made;
      },
      devices);
  count_correct(net, random_data(devices), kRows, 8);
  // The running mean, which training would move.
  EXPECT_EQ(net.module().named_buffers()[0].value.item(), 0.0F);
  EXPECT_TRUE(net.module().training());
}

TEST(CountCorrect, LeavesAFrozenNormFrozen) {
  const std::vector<Device> devices = make_devices(2);
  const DataParallel net(
      [](const Device& device) {
        auto made = std::make_shared<nn::Sequential>();
        made->add<nn::BatchNorm2d>("frozen", 1, device).add<nn::Flatten>("flatten");
        made->add<nn::Linear>("fc", 784, 10, device);
        return made;
      },
      devices);
  for (const auto& replica : net.replicas()) replica->children()[0].second->eval();
  count_correct(net, random_data(devices), kRows, 8);
  for (const auto& replica : net.replicas()) {
    EXPECT_TRUE(replica->training());
    EXPECT_FALSE(replica->children()[0].second->training());
    EXPECT_TRUE(replica->children()[2].second->training());
  }
}

}  // namespace
}  // namespace lockstep::parallel
