// Batch norm over several replicas, each in a host thread of its own on a device of its own, against one that
// has the whole batch.
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <memory>
#include <random>
#include <thread>

#include "core/autograd.h"
#include "kernels/check.h"
#include "nn/layers.h"
#include "tests/error_of.h"

namespace lockstep::nn {
namespace {

// What the replicas meet at: the sums go through the host.
struct Meeting {
  explicit Meeting(int count) : barrier(count), rows(static_cast<size_t>(count)), values(rows.size()) {}
  std::barrier<> barrier;
  std::vector<int64_t> rows;
  std::vector<std::vector<float>> values;
};

class MeetingGroup : public collective::Group {
 public:
  MeetingGroup(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(meeting_->rows.size()); }
  std::vector<int64_t> all_gather(int64_t rows) override {
    meeting_->rows[static_cast<size_t>(rank_)] = rows;
    meeting_->barrier.arrive_and_wait();
    const std::vector<int64_t> all = meeting_->rows;
    meeting_->barrier.arrive_and_wait();
    return all;
  }
  void all_reduce(const Tensor& values) override {
    meeting_->values[static_cast<size_t>(rank_)] = values.to_host<float>();
    meeting_->barrier.arrive_and_wait();
    std::vector<float> total(static_cast<size_t>(values.size()));
    for (const std::vector<float>& part : meeting_->values)
      for (size_t i = 0; i < total.size(); ++i) total[i] += part[i];
    meeting_->barrier.arrive_and_wait();
    values.copy_from(Tensor::from_host(total, values.shape(), values.device()));
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
};

constexpr int64_t kChannels = 5;
const Shape kImage{2, 3, kChannels};

std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> value(-2, 2);
  std::vector<float> values(n);
  for (float& v : values) v = value(generator);
  return values;
}

// Images [first, first + count) of a batch of 9, and what one replica computes of them.
struct Part {
  int64_t first, count;
  std::vector<float> y, dx, daddend, dweight, dbias, running_mean, running_var;
};

void compute(Part& part, const Device& device, const std::shared_ptr<collective::Group>& replicas) {
  const Shape shape{part.count, kImage[0], kImage[1], kImage[2]};
  const int64_t image = element_count(kImage);
  const auto shard = [&](uint32_t seed) {
    const std::vector<float> all = random_values(static_cast<size_t>(9 * image), seed);
    const auto begin = all.begin() + part.first * image;
    return Tensor::from_host(std::vector<float>(begin, begin + part.count * image), shape, device);
  };
  BatchNorm2d norm(kChannels, device, Activation::relu);
  norm.set_group(replicas);
  norm.parameters()[0].copy_from(Tensor::from_host(random_values(kChannels, 1), {kChannels}, device));
  Tensor x = shard(2), addend = shard(3);
  x.set_requires_grad(true);
  addend.set_requires_grad(true);
  const Tensor y = norm.forward(x, addend);
  backward(y, shard(4));
  part.y = y.to_host<float>();
  part.dx = x.grad().to_host<float>();
  part.daddend = addend.grad().to_host<float>();
  part.dweight = norm.parameters()[0].grad().to_host<float>();
  part.dbias = norm.parameters()[1].grad().to_host<float>();
  part.running_mean = norm.named_buffers()[0].value.to_host<float>();
  part.running_var = norm.named_buffers()[1].value.to_host<float>();
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << what << " " << i;
}

TEST(BatchNormOverReplicas, AgreesWithOneThatHasTheWholeBatch) {
  Part whole{0, 9, {}, {}, {}, {}, {}, {}, {}};
  compute(whole, make_devices(1)[0], nullptr);

  std::vector<Part> parts{{0, 4, {}, {}, {}, {}, {}, {}, {}},
                          {4, 0, {}, {}, {}, {}, {}, {}, {}},
                          {4, 5, {}, {}, {}, {}, {}, {}, {}}};
  const std::vector<Device> devices = make_devices(3);
  const auto meeting = std::make_shared<Meeting>(3);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      compute(parts[r], devices[r], std::make_shared<MeetingGroup>(meeting, static_cast<int>(r)));
    });
  for (std::thread& thread : threads) thread.join();

  Part gathered{0, 9, {}, {}, {}, std::vector<float>(kChannels), std::vector<float>(kChannels), {}, {}};
  for (const Part& part : parts) {
    const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(gathered.y, part.y);
    append(gathered.dx, part.dx);
    append(gathered.daddend, part.daddend);
    for (size_t c = 0; c < kChannels; ++c) {
      gathered.dweight[c] += part.dweight[c];
      gathered.dbias[c] += part.dbias[c];
    }
    // All replicas, that without rows too, have the same running statistics.
    EXPECT_EQ(part.running_mean, parts[0].running_mean);
    EXPECT_EQ(part.running_var, parts[0].running_var);
  }
  // Values of at most 5 and sums over 54 rows of them: a few dozen roundings of 2^-24 of 5, and of 54 * 5.
  expect_near(gathered.y, whole.y, 2e-5, "y");
  expect_near(gathered.dx, whole.dx, 2e-5, "dx");
  EXPECT_EQ(gathered.daddend, whole.daddend);
  expect_near(gathered.dweight, whole.dweight, 2e-4, "dweight");
  expect_near(gathered.dbias, whole.dbias, 2e-4, "dbias");
  expect_near(parts[0].running_mean, whole.running_mean, 2e-6, "running mean");
  expect_near(parts[0].running_var, whole.running_var, 2e-6, "running variance");
}

TEST(BatchNormOverReplicas, OfOneValueAChannelIsRefused) {
  const Device device = make_devices(1)[0];
  BatchNorm2d norm(2, device);
  norm.set_group(std::make_shared<MeetingGroup>(std::make_shared<Meeting>(1), 0));
  EXPECT_EQ(error_of([&] { norm.forward(Tensor::zeros({1, 1, 1, 2}, device)); }),
            "batch_norm: one value per channel has no variance: train with more rows or larger images");
}

}  // namespace
}  // namespace lockstep::nn
