// A checkpoint of replicas that differ in what is their own (running statistics, draws of dropout), in the
// middle of an epoch: all of it comes back.
#include "apps/common/checkpointing.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "nn/adam.h"
#include "nn/init.h"
#include "nn/io/state_dict.h"
#include "nn/layers.h"
#include "parallel/replicas.h"
#include "tests/nn/idx_files.h"

namespace lockstep::apps {
namespace {

constexpr int kSide = 6;
constexpr int64_t kRows = 7;  // uneven shards

std::shared_ptr<nn::Module> make_net(const Device& device, uint64_t seed) {
  auto net = std::make_shared<nn::Sequential>();
  net->add("conv", std::make_shared<nn::Conv2d>(1, 4, 3, device));
  net->add("norm", std::make_shared<nn::BatchNorm2d>(4, device, nn::Activation::relu));
  net->add("drop", std::make_shared<nn::Dropout>(0.3F, 5)).add("flat", std::make_shared<nn::Flatten>());
  net->add("fc", std::make_shared<nn::Linear>(4 * 4 * 4, 10, device));
  nn::initialise(*net, nn::Init::kaiming, seed);
  return net;
}

struct Training {
  std::vector<Device> devices;
  std::vector<data::DeviceData> data;
  parallel::Trainer trainer;

  explicit Training(int k, uint64_t seed = 1)
      : devices(make_devices(k)),
        trainer([seed](const Device& device) { return make_net(device, seed); }, devices,
                {.make_optimizer = [](std::vector<Tensor> parameters) {
                  return std::make_unique<nn::Adam>(std::move(parameters), nn::AdamOptions{});
                }}) {
    std::mt19937 generator(3);
    std::vector<uint8_t> images(kRows * kSide * kSide), labels(kRows);
    for (uint8_t& pixel : images) pixel = static_cast<uint8_t>(generator() % 256);
    for (uint8_t& label : labels) label = static_cast<uint8_t>(generator() % 10);
    std::vector<int32_t> order(kRows);
    std::iota(order.begin(), order.end(), 0);
    for (const Device& device : devices) {
      data.emplace_back(images, labels, kSide, kSide, data::Normalisation{0.5F, 0.3F}, device);
      data.back().set_order(order);
    }
  }

  // Of all rows, and then of one, which leaves the other replicas without any.
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      const std::vector<int64_t> sizes =
          parallel::split_sizes(i == 1 ? 1 : kRows, static_cast<int>(devices.size()));
      std::vector<data::LabelledBatch> shards;
      int64_t begin = 0;
      for (size_t r = 0; r < devices.size(); ++r) {
        shards.push_back(data[r].batch(begin, sizes[r]));
        begin += sizes[r];
      }
      trainer.step(shards, 0.01F);
    }
  }

  // Everything that a later step depends on.
  std::vector<std::vector<data::HostTensor>> state() {
    std::vector<std::vector<data::HostTensor>> all;
    const auto names = nn::parameter_names(trainer.net().module());
    for (size_t r = 0; r < devices.size(); ++r) {
      all.push_back(nn::state_dict(*trainer.replicas()[r]));
      all.push_back(nn::replica_state(*trainer.replicas()[r]));
      all.push_back(trainer.optimizers().optimizers()[r]->state(names));
    }
    return all;
  }
};

class CheckpointingTest : public testing::Test {
 protected:
  Options options(bool resume) const {
    Options options;
    options.checkpoint = (folder_.path() / "run").string();
    options.resume = resume;
    options.quiet = true;
    return options;
  }

  const data::TemporaryFolder folder_;
};

TEST_F(CheckpointingTest, ReplicasGoOnWithWhatIsTheirOwn) {
  Training whole(2), saved(2), resumed(2, 99);
  whole.steps(3);
  whole.steps(3);
  saved.steps(3);
  TrainingProgress progress{
      .step = 3, .images = 15, .epoch = 0, .position = 3, .seconds = 0.25, .sums = {}, .results = {}};
  progress.sums.add(saved.trainer.report(), 3);
  {
    const Options to = options(false);
    Checkpointing(to, {}).save(progress, saved.trainer);
  }
  const auto rows = saved.trainer.net().rows_since_combined();
  EXPECT_NE(rows[0], rows[1]);
  EXPECT_NE(nn::replica_state(*saved.trainer.replicas()[0]), nn::replica_state(*saved.trainer.replicas()[1]));
  saved.steps(3);
  EXPECT_EQ(saved.state(), whole.state()) << "saving changes nothing";

  const Options from = options(true);
  const TrainingProgress found = Checkpointing(from, {}).resume(resumed.trainer);
  EXPECT_EQ(found.step, 3);
  EXPECT_EQ(found.position, 3);
  EXPECT_EQ(found.seconds, 0.25);
  EXPECT_EQ(found.sums.loss, progress.sums.loss);
  EXPECT_EQ(found.sums.rows, progress.sums.rows);
  EXPECT_EQ(resumed.trainer.net().rows_since_combined(), rows);
  resumed.steps(3);
  EXPECT_EQ(resumed.state(), whole.state());
  whole.trainer.net().combine_buffers();
  resumed.trainer.net().combine_buffers();
  EXPECT_EQ(resumed.state(), whole.state());
}

TEST_F(CheckpointingTest, MoreReplicasStartFromTheCombinedStatistics) {
  Training saved(2), more(3, 99);
  saved.steps(3);
  {
    const Options to = options(false);
    Checkpointing(to, {}).save({.step = 3}, saved.trainer);
  }
  const Options from = options(true);
  Checkpointing(from, {}).resume(more.trainer);
  const auto optimizer = saved.state()[2];
  saved.trainer.net().combine_buffers();
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(more.state()[3 * r], saved.state()[0]) << "replica " << r;
    EXPECT_EQ(more.state()[3 * r + 1], saved.state()[1]) << "replica " << r;
    EXPECT_EQ(more.state()[3 * r + 2], optimizer) << "replica " << r;
  }
  more.steps(3);
  EXPECT_TRUE(nn::checkpoint_steps(folder_.path() / "run").size() == 1);
}

}  // namespace
}  // namespace lockstep::apps
