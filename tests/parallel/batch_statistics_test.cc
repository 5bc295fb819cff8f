// Batch norm on several devices: by each shard's own statistics, against the same shards on one device by
// hand; by those of the whole batch, against one device; and what happens when replicas do not agree.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/check.h"
#include "parallel/replicas.h"
#include "tests/error_of.h"
#include "tests/parallel/checksum.h"
#include "tests/parallel/small_net.h"

namespace lockstep::parallel {
namespace {

constexpr int kSteps = 3;
constexpr int64_t kRows = 19;  // prime: every k gives uneven shards, all of more than one row
constexpr float kRate = 0.02F;

// Where statistics are summed in another order, values differ by some roundings (6e-8), which a norm's
// division by a small deviation and three steps make larger; measured: 1.5e-6.
constexpr double kRounding = 2e-5;

// Loss, gradients, weights and buffers of every step on `devices`.
struct Record {
  std::vector<Lists> outputs, gradients, weights, buffers;
};

Record train(DataParallel& net, int64_t rows = kRows) {
  Record result;
  for (unsigned step = 0; step < kSteps; ++step) {
    const Batch batch = random_batch(rows, net.devices()[0], step);
    net.zero_grad();
    Tensor x = batch.x.detach();
    x.set_requires_grad(true);
    const Tensor y = net(x);
    backward(sum_loss(y, batch.y));
    result.outputs.push_back({y.to_host<float>(), x.grad().to_host<float>()});
    result.gradients.push_back(gradients_of(net.module()));
    for (const auto& replica : net.replicas()) {
      EXPECT_EQ(gradients_of(*replica), result.gradients.back());
      descend(*replica, kRate);
    }
    result.weights.push_back(weights_of(net.module()));
    result.buffers.push_back(buffers_of(net.module()));
  }
  return result;
}

void expect_close(const Record& got, const Record& want, const std::string& what) {
  for (size_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(fmt::format("{}, step {}", what, step));
    EXPECT_LE(difference(got.outputs[step], want.outputs[step]), kRounding);
    EXPECT_LE(difference(got.gradients[step], want.gradients[step]), kRounding);
    EXPECT_LE(difference(got.weights[step], want.weights[step]), kRounding);
    EXPECT_LE(difference(got.buffers[step], want.buffers[step]), kRounding);
  }
}

DataParallel with_statistics(BatchStatistics statistics, int k) {
  return DataParallel(normed_net, make_devices(k), {.statistics = statistics});
}

TEST(BatchStatisticsOfTheBatch, MatchOneDevice) {
  SCOPED_TRACE(fmt::format("seeds 0 to {}", kSteps - 1));
  DataParallel one(normed_net, make_devices(1));
  const Record want = train(one);
  for (int k = 2; k <= 8; ++k) {
    DataParallel net = with_statistics(BatchStatistics::batch, k);
    expect_close(train(net), want, fmt::format("{} devices", k));
    for (const auto& replica : net.replicas()) EXPECT_EQ(buffers_of(*replica), buffers_of(net.module()));
    const Lists before = buffers_of(net.module());
    net.combine_buffers();  // they are one already
    EXPECT_EQ(buffers_of(net.module()), before);
  }
}

TEST(BatchStatisticsOfTheBatch, TakeShardsOfOneRowAndOfNone) {
  DataParallel one(normed_net, make_devices(1));
  DataParallel net = with_statistics(BatchStatistics::batch, 5);
  expect_close(train(net, 3), train(one, 3), "3 rows on 5 devices");
  for (const auto& replica : net.replicas()) EXPECT_EQ(buffers_of(*replica), buffers_of(net.module()));
}

TEST(BatchStatisticsOfTheBatch, GiveTheSameBitsOnEveryRun) {
  DataParallel first = with_statistics(BatchStatistics::batch, 4);
  DataParallel second = with_statistics(BatchStatistics::batch, 4);
  EXPECT_EQ(train(first).weights, train(second).weights);
}

TEST(BatchStatisticsOfTheBatch, EvaluateAndLeaveNoHistoryUnderNoGrad) {
  DataParallel net = with_statistics(BatchStatistics::batch, 3);
  const Batch batch = random_batch(kRows, net.devices()[0]);
  {
    const NoGrad no_grad;
    std::vector<Tensor> shards;
    for (const Device& device : net.devices()) shards.push_back(random_batch(2, device).x);
    for (const Tensor& output : net.forward(shards)) EXPECT_FALSE(output.requires_grad());
  }
  net.eval();
  const Lists before = buffers_of(net.module());
  const Tensor y = net(batch.x);
  EXPECT_EQ(buffers_of(net.module()), before);
  // Shards may take other kernels than the whole batch.
  EXPECT_LE(difference({y.to_host<float>()}, {net.module().forward(batch.x).to_host<float>()}), 1e-6);
}

TEST(BatchStatisticsReplicas, PrintAChecksumOfTheirWeights) {
  for (const auto& [statistics, name] : {std::pair{BatchStatistics::batch, "statistics of the batch"},
                                         std::pair{BatchStatistics::shard, "statistics of shards"}}) {
    DataParallel net = with_statistics(statistics, 4);
    train(net);
    net.combine_buffers();
    std::vector<Lists> values;
    for (const auto& replica : net.replicas()) {
      values.push_back(weights_of(*replica));
      for (const auto& buffer : buffers_of(*replica)) values.back().push_back(buffer);
    }
    print_checksum(name, values);
  }
}

// What the shards do, on one device, one network a shard: its own buffers and the same weights.
TEST(BatchStatisticsOfTheShard, AreThoseOfTheSameShardsOnOneDevice) {
  SCOPED_TRACE(fmt::format("seeds 0 to {}", kSteps - 1));
  const Device device = make_devices(1)[0];
  for (int k = 2; k <= 8; ++k) {
    std::vector<std::shared_ptr<nn::Module>> nets;
    for (int r = 0; r < k; ++r) nets.push_back(normed_net(device));
    Record want;
    for (unsigned step = 0; step < kSteps; ++step) {
      const Batch batch = random_batch(kRows, device, step);
      Tensor x = batch.x.detach();
      x.set_requires_grad(true);
      std::vector<float> y, dx;
      Lists gradients;
      int64_t begin = 0;
      const std::vector<int64_t> sizes = split_sizes(kRows, k);
      for (size_t r = 0; r < nets.size(); ++r, begin += sizes[r - 1]) {
        Tensor shard = x.slice(begin, begin + sizes[r]);
        shard.set_requires_grad(true);
        for (const Tensor& parameter : nets[r]->parameters()) parameter.set_grad(Tensor());
        const Tensor output = nets[r]->forward(shard);
        backward(sum_loss(output, batch.y.slice(begin, begin + sizes[r])));
        for (const float value : output.to_host<float>()) y.push_back(value);
        for (const float value : shard.grad().to_host<float>()) dx.push_back(value);
        const Lists own = gradients_of(*nets[r]);
        if (gradients.empty()) gradients = Lists(own.size());
        for (size_t p = 0; p < own.size(); ++p) {
          gradients[p].resize(own[p].size());
          for (size_t i = 0; i < own[p].size(); ++i) gradients[p][i] += own[p][i];
        }
      }
      for (const auto& net : nets) {
        const std::vector<Tensor> parameters = net->parameters();
        for (size_t p = 0; p < parameters.size(); ++p)
          parameters[p].set_grad(Tensor::from_host(gradients[p], parameters[p].shape(), device));
        descend(*net, kRate);
      }
      want.outputs.push_back({y, dx});
      want.gradients.push_back(gradients);
      want.weights.push_back(weights_of(*nets[0]));
      want.buffers.push_back(buffers_of(*nets[0]));
    }
    DataParallel net = with_statistics(BatchStatistics::shard, k);
    expect_close(train(net), want, fmt::format("{} devices", k));
    for (size_t r = 0; r < nets.size(); ++r)
      EXPECT_LE(difference(buffers_of(*net.replicas()[r]), buffers_of(*nets[r])), kRounding) << k;
  }
}

// The running statistics of all replicas as one, in double: [mean, variance] of each pair of buffers.
std::vector<std::vector<double>> combined(const std::vector<Lists>& buffers,
                                          const std::vector<double>& rows) {
  std::vector<std::vector<double>> result(buffers[0].size());
  double total = 0;
  for (const double count : rows) total += count;
  for (size_t b = 0; b < result.size(); b += 2)
    for (size_t c = 0; c < buffers[0][b].size(); ++c) {
      double mean = 0, variance = 0;
      for (size_t r = 0; r < rows.size(); ++r) mean += rows[r] / total * buffers[r][b][c];
      for (size_t r = 0; r < rows.size(); ++r) {
        const double apart = buffers[r][b][c] - mean;
        variance += rows[r] / total * (buffers[r][b + 1][c] + apart * apart);
      }
      result[b].push_back(mean);
      result[b + 1].push_back(variance);
    }
  return result;
}

void expect_equal(const Lists& got, const std::vector<std::vector<double>>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t b = 0; b < want.size(); ++b)
    for (size_t c = 0; c < want[b].size(); ++c)  // a few roundings
      EXPECT_NEAR(got[b][c], want[b][c], 1e-6 * (1 + std::abs(want[b][c]))) << b << ", channel " << c;
}

std::vector<Lists> buffers_of_all(const DataParallel& net) {
  std::vector<Lists> buffers;
  for (const auto& replica : net.replicas()) buffers.push_back(buffers_of(*replica));
  return buffers;
}

TEST(CombinedBuffers, AreTheMeanAndTheVarianceOverAllRows) {
  DataParallel net = with_statistics(BatchStatistics::shard, 3);
  const auto see = [&](int64_t rows, unsigned seed) { net(random_batch(rows, net.devices()[0], seed).x); };
  see(9, 1);
  see(2, 2);  // replica 2 has none
  EXPECT_EQ(net.rows_since_combined(), (std::vector<int64_t>{4, 4, 3}));
  std::vector<Lists> before = buffers_of_all(net);
  EXPECT_NE(before[0], before[1]);
  const auto want = combined(before, {4, 4, 3});
  EXPECT_EQ(values_of(net.combined_buffers()).size(), before[0].size());
  EXPECT_EQ(buffers_of_all(net), before) << "combined_buffers() writes nothing";
  net.combine_buffers();
  for (const Lists& buffers : buffers_of_all(net)) {
    expect_equal(buffers, want);
    EXPECT_EQ(buffers, buffers_of(net.module()));
  }

  const std::vector<Lists> once = buffers_of_all(net);
  net.combine_buffers();  // nobody has seen anything since
  EXPECT_EQ(buffers_of_all(net), once);

  see(2, 3);  // replica 2 does not count now
  before = buffers_of_all(net);
  net.combine_buffers();
  expect_equal(buffers_of(*net.replicas()[2]), combined({before[0], before[1]}, {1, 1}));

  net.eval();
  see(9, 4);
  EXPECT_EQ(net.rows_since_combined(), (std::vector<int64_t>{0, 0, 0})) << "evaluation does not count";
}

// A norm that is frozen in a network that trains keeps its statistics bit for bit; one that trains alone, in
// a network that evaluates, has them combined.
TEST(CombinedBuffers, AreThoseOfTheNormsThatTrain) {
  const auto norm = [](const std::shared_ptr<nn::Module>& replica) { return replica->children()[1].second; };
  DataParallel frozen = with_statistics(BatchStatistics::shard, 3);
  for (const auto& replica : frozen.replicas()) {
    norm(replica)->eval();
    for (const nn::Buffer& buffer : norm(replica)->named_buffers())
      buffer.value.copy_from(Tensor::from_host<float>({0.1F, 0.3F, 0.7F, 1.9F}, {4}, buffer.value.device()));
  }
  const Lists before = buffers_of(*norm(frozen.replicas()[0]));
  frozen(random_batch(7, frozen.devices()[0]).x);
  frozen.combine_buffers();
  for (const auto& replica : frozen.replicas()) EXPECT_EQ(buffers_of(*norm(replica)), before);

  DataParallel alone = with_statistics(BatchStatistics::shard, 2);
  alone.eval();
  for (const auto& replica : alone.replicas()) norm(replica)->train();
  alone(random_batch(7, alone.devices()[0]).x);
  EXPECT_EQ(alone.rows_since_combined(), (std::vector<int64_t>{4, 3}));
  EXPECT_NE(buffers_of(*alone.replicas()[0]), buffers_of(*alone.replicas()[1]));
  alone.combine_buffers();
  EXPECT_EQ(buffers_of(*alone.replicas()[0]), buffers_of(*alone.replicas()[1]));
}

// Counts its calls in a buffer that is no statistic.
class Counting : public nn::Module {
 public:
  explicit Counting(const Device& device) : calls_(add_buffer("calls", {1}, device, 0)) {}
  Tensor forward(const Tensor& x) override {
    ++count_;
    calls_.copy_from(Tensor::from_host(std::vector<float>{count_}, {1}, x.device()));
    return x;
  }
  std::string describe() const override { return "Counting"; }

 private:
  Tensor calls_;
  float count_ = 0;
};

TEST(CombinedBuffers, AreThoseOfReplicaZeroWhereTheyAreNoStatistics) {
  DataParallel net([](const Device& device) { return std::make_shared<Counting>(device); }, make_devices(2));
  net(random_batch(2, net.devices()[0]).x);
  net(random_batch(1, net.devices()[0]).x);
  EXPECT_EQ(buffers_of(*net.replicas()[1])[0], std::vector<float>{1});
  net.combine_buffers();
  EXPECT_EQ(buffers_of(*net.replicas()[1])[0], std::vector<float>{2});
}

// Knows itself what its count is for all replicas: the sum, and the rows.
class CountingAll : public Counting {
 public:
  using Counting::Counting;

 protected:
  std::vector<Tensor> combine_own_buffers(const std::vector<std::vector<Tensor>>& replicas,
                                          const std::vector<int64_t>& rows) const override {
    float sum = 0;
    for (size_t r = 0; r < replicas.size(); ++r)
      sum += replicas[r][0].to_host<float>()[0] + 100 * static_cast<float>(rows[r]);
    return {Tensor::from_host<float>({sum}, {1}, replicas[0][0].device())};
  }
};

TEST(CombinedBuffers, AreWhatAModuleOfOnesOwnSays) {
  const auto make = [](const Device& device) {
    auto net = std::make_shared<nn::Sequential>();
    net->add<CountingAll>("all", device).add<Counting>("first", device);
    return net;
  };
  DataParallel net(make, make_devices(2));
  net(random_batch(2, net.devices()[0]).x);
  net(random_batch(1, net.devices()[0]).x);
  net.combine_buffers();
  for (const auto& replica : net.replicas())
    EXPECT_EQ(buffers_of(*replica), (std::vector<std::vector<float>>{{3 + 300}, {2}}));
}

// Does what its script says: n passes a batch norm of one channel, w one of two, ! throws.
class Scripted : public nn::Module {
 public:
  Scripted(const Device& device, std::string script)
      : script_(std::move(script)),
        narrow_(std::make_shared<nn::BatchNorm2d>(1, device)),
        wide_(std::make_shared<nn::BatchNorm2d>(2, device)) {
    add_child("narrow", narrow_);
    add_child("wide", wide_);
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const char step : script_) {
      if (step == '!') throw Error("it has had enough");
      if (step == 'n') y = narrow_->forward(y);
      if (step == 'w') y = wide_->forward(y.reshape({y.dim(0), 6, 3, 2})).reshape(y.shape());
    }
    return y;
  }
  std::string describe() const override { return "Scripted"; }
  std::string script_;

 private:
  std::shared_ptr<nn::BatchNorm2d> narrow_, wide_;
};

// The error of a forward pass of replicas with these scripts; afterwards, they work again.
std::string error_with(const std::vector<std::string>& scripts) {
  DataParallel net(
      [&](const Device& device) {
        return std::make_shared<Scripted>(device, scripts[static_cast<size_t>(device.index())]);
      },
      make_devices(static_cast<int>(scripts.size())), {.statistics = BatchStatistics::batch});
  const Batch batch = random_batch(7, net.devices()[0]);
  const std::string error = error_of([&] { net(batch.x); });
  for (const auto& replica : net.replicas()) dynamic_cast<Scripted&>(*replica).script_ = "nw";
  EXPECT_EQ(net(batch.x).shape(), batch.x.shape());
  return error;
}

TEST(BatchStatisticsOfTheBatch, NameTheReplicaThatThrows) {
  EXPECT_EQ(error_with({"nn", "nn!n", "nnn"}), "replica 1: it has had enough");
  EXPECT_EQ(error_with({"!", "n", "n"}), "replica 0: it has had enough");
  EXPECT_EQ(error_with({"n", "n", "n!"}), "replica 2: it has had enough");
}

TEST(BatchStatisticsOfTheBatch, NameTheReplicaThatPassesFewerNorms) {
  const std::string why = ": with the statistics of the whole batch they must run the same layers";
  EXPECT_EQ(error_with({"nnn", "nn"}),
            "replica 1 ended after 2 sums over all replicas, but replica 0 has another" + why);
  EXPECT_EQ(error_with({"nn", "", ""}),
            "replica 1 ended after 0 sums over all replicas, but replica 0 has another" + why);
}

TEST(BatchStatisticsOfTheBatch, NameTheReplicaWhoseNormsAreOthers) {
  EXPECT_EQ(error_with({"nn", "nn", "nw"}),
            "replicas 0 and 2 differ at sum 2 over all replicas: with the statistics of the whole batch they "
            "must run the "
            "same layers");
}

TEST(BatchStatisticsOfTheBatch, RefuseAReplicaThatRunsAlone) {
  DataParallel net = with_statistics(BatchStatistics::batch, 2);
  EXPECT_EQ(
      error_of([&] { net.module().forward(random_batch(2, net.devices()[0]).x); }),
      "a layer that needs all replicas (batch norm with the statistics of the whole batch) ran in replica 0 "
      "alone: run it through "
      "DataParallel, or in evaluation mode");
}

TEST(BatchStatisticsOfTheBatch, ReleaseTheOthersWhereOneThrowsOnTheWayBack) {
  // Replica 1's gradient does not fit: its walk ends before its first norm.
  DataParallel net([](const Device& device) { return std::make_shared<Scripted>(device, "nn"); },
                   make_devices(2), {.statistics = BatchStatistics::batch});
  const std::vector<Device>& devices = net.devices();
  const std::vector<Tensor> outputs =
      net.forward({random_batch(3, devices[0]).x, random_batch(3, devices[1]).x});
  EXPECT_EQ(error_of([&] {
              net.backward(outputs, {Tensor::zeros(outputs[0].shape(), devices[0]),
                                     Tensor::zeros({1, 6, 6, 1}, devices[1])});
            }),
            "replica 1: backward: a gradient of shape [1, 6, 6, 1] for an output of shape [3, 6, 6, 1]");
}

}  // namespace
}  // namespace lockstep::parallel
