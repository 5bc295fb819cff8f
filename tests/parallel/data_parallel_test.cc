// DataParallel against one device: outputs, gradients, accumulation, unused parameters, and what it refuses.
#include "parallel/data_parallel.h"
#include "parallel/replica_optimizers.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <thread>

#include "kernels/check.h"
#include "kernels/elementwise.h"
#include "nn/sgd.h"
#include "parallel/replicas.h"
#include "tests/error_of.h"
#include "tests/parallel/small_net.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kRows = 13;  // prime: every k gives uneven shards

// Sums of a few hundred products in another order: 20 roundings of the largest value, generously.
constexpr double kRounding = 20 * 6e-8;

struct OneDevice {
  Lists outputs, gradients;
  std::vector<float> dx;
};

OneDevice on_one_device(const Batch& batch) {
  const auto net = plain_net(batch.x.device());
  Tensor x = batch.x.detach();
  x.set_requires_grad(true);
  const Tensor y = net->forward(x);
  backward(sum_loss(y, batch.y));
  return {{y.to_host<float>()}, gradients_of(*net), x.grad().to_host<float>()};
}

TEST(DataParallel, GivesTheOutputsAndGradientsOfOneDevice) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  for (int k = 1; k <= 8; ++k) {
    const std::vector<Device> devices = make_devices(k);
    const Batch batch = random_batch(kRows, devices[0]);
    const OneDevice one = on_one_device(batch);
    DataParallel net(plain_net, devices);
    Tensor x = batch.x.copy_to(devices.back());  // a batch may lie anywhere
    x.set_requires_grad(true);
    const Tensor y = net(x);
    EXPECT_EQ(y.device(), devices[0]);
    EXPECT_LE(difference({y.to_host<float>()}, one.outputs), kRounding) << k << " devices";
    backward(sum_loss(y, batch.y));
    EXPECT_LE(difference(gradients_of(net.module()), one.gradients), kRounding) << k << " devices";
    EXPECT_LE(difference({x.grad().to_host<float>()}, {one.dx}), kRounding) << k << " devices";
    for (const auto& replica : net.replicas())
      EXPECT_EQ(gradients_of(*replica), gradients_of(net.module())) << k << " devices";
  }
}

// As through the bare module: a bfloat16 leaf, and a bfloat16 activation.
TEST(DataParallel, GivesABfloat16InputItsGradient) {
  for (const bool leaf : {true, false})
    for (const int k : {1, 2, 3, 5}) {
      const std::vector<Device> devices = make_devices(k);
      const Batch batch = random_batch(4, devices[0]);  // on 5 devices one has no rows
      const auto gradient = [&](const std::function<Tensor(const Tensor&)>& net) {
        Tensor x = leaf ? nn::cast(batch.x, DType::bfloat16) : batch.x.copy_to(devices[0]);
        x.set_requires_grad(true);
        backward(sum_loss(net(nn::cast(x, DType::bfloat16)), batch.y));
        EXPECT_EQ(x.grad().dtype(), x.dtype());
        return nn::cast(x.grad(), DType::float32).to_host<float>();
      };
      DataParallel net(plain_net, devices);
      const auto bare = plain_net(devices[0]);
      const auto want = gradient([&](const Tensor& x) { return bare->forward(x); });
      // A float32 rounding may tip a rounding to 8 digits.
      EXPECT_LE(difference({gradient([&](const Tensor& x) { return net(x); })}, {want}), 0x1p-7)
          << k << " devices, leaf " << leaf;
    }
}

TEST(DataParallel, TakesFewerRowsThanDevices) {
  const std::vector<Device> devices = make_devices(5);
  const Batch batch = random_batch(2, devices[0]);
  const OneDevice one = on_one_device(batch);
  DataParallel net(plain_net, devices);
  const Tensor y = net(batch.x);
  EXPECT_LE(difference({y.to_host<float>()}, one.outputs), kRounding);
  backward(sum_loss(y, batch.y));
  for (const auto& replica : net.replicas())
    EXPECT_LE(difference(gradients_of(*replica), one.gradients), kRounding);
}

TEST(DataParallel, LeavesNoHistoryUnderNoGrad) {
  DataParallel net(plain_net, make_devices(2));
  const NoGrad no_grad;
  EXPECT_FALSE(net(random_batch(4, net.devices()[0]).x).requires_grad());
}

TEST(DataParallel, CountsBothUsesInOneLoss) {
  const std::vector<Device> devices = make_devices(3);
  const Batch batch = random_batch(kRows, devices[0]), other = random_batch(kRows, devices[0], 5);
  const auto one = plain_net(devices[0]);
  DataParallel net(plain_net, devices);
  backward(nn::add(sum_loss(one->forward(batch.x), batch.y), sum_loss(one->forward(other.x), other.y)));
  backward(nn::add(sum_loss(net(batch.x), batch.y), sum_loss(net(other.x), other.y)));
  EXPECT_LE(difference(gradients_of(net.module()), gradients_of(*one)), kRounding);
}

// Rows [begin, end) of the batch: forward and backward.
void accumulate(DataParallel& net, const Batch& batch, int64_t begin, int64_t end) {
  backward(sum_loss(net(batch.x.slice(begin, end)), batch.y.slice(begin, end)));
}

TEST(DataParallel, AccumulatesSeveralBatchesAsOne) {
  const std::vector<Device> devices = make_devices(3);
  const Batch batch = random_batch(kRows, devices[0]);
  const OneDevice one = on_one_device(batch);
  const auto accumulated = [&](const std::function<void(DataParallel&)>& steps) {
    DataParallel net(plain_net, devices);
    accumulate(net, batch, 0, 3);  // what zero_grad() must forget
    net.zero_grad();
    steps(net);
    for (const auto& replica : net.replicas()) EXPECT_EQ(gradients_of(*replica), gradients_of(net.module()));
    return gradients_of(net.module());
  };
  const Lists held_back = accumulated([&](DataParallel& net) {
    {
      const auto apart = net.no_sync();
      accumulate(net, batch, 0, 5);
      accumulate(net, batch, 5, 7);  // replica 2 has no rows
    }
    accumulate(net, batch, 7, kRows);
  });
  EXPECT_LE(difference(held_back, one.gradients), kRounding);
  const Lists reduced_each = accumulated([&](DataParallel& net) {
    accumulate(net, batch, 0, 5);
    accumulate(net, batch, 5, 7);
    accumulate(net, batch, 7, kRows);
  });
  EXPECT_LE(difference(reduced_each, one.gradients), kRounding);
  const Lists mixed = accumulated([&](DataParallel& net) {
    accumulate(net, batch, 0, 5);
    {
      const auto apart = net.no_sync();
      accumulate(net, batch, 5, 7);
      accumulate(net, batch, 7, 9);
    }
    net.reduce_gradients();
    net.reduce_gradients();  // nothing is left to sum
    accumulate(net, batch, 9, kRows);
  });
  EXPECT_LE(difference(mixed, one.gradients), kRounding);
}

TEST(DataParallel, ReducesInBfloat16WhereAskedTo) {
  const std::vector<Device> devices = make_devices(4);
  const Batch batch = random_batch(kRows, devices[0]);
  const OneDevice one = on_one_device(batch);
  DataParallel net(plain_net, devices, {.reduce_in = DType::bfloat16});
  accumulate(net, batch, 0, kRows);
  const Lists sums = gradients_of(net.module());
  for (const auto& replica : net.replicas()) EXPECT_EQ(gradients_of(*replica), sums);
  // Four values and their sums are rounded to 8 digits, each by a part of 2^-9 of something no larger than
  // the sum of their sizes, which is at most a few times the largest gradient.
  EXPECT_LE(difference(sums, one.gradients), 4 * 7 / 512.0);
  for (const std::vector<float>& list : sums)
    for (const float value : list) EXPECT_EQ(std::bit_cast<uint32_t>(value) & 0xFFFFU, 0U) << value;
}

TEST(DataParallel, RefusesToReduceInAnotherType) {
  EXPECT_EQ(error_of([] { DataParallel net(plain_net, make_devices(2), {.reduce_in = DType::int32}); }),
            "gradients cannot be reduced in int32: use float32 or bfloat16");
}

TEST(DataParallel, RefusesToGoBackThroughWeightsThatWereSteppedSince) {
  for (const auto statistics : {BatchStatistics::shard, BatchStatistics::batch})
    for (const int k : {1, 2, 3}) {
      const std::vector<Device> devices = make_devices(k);
      DataParallel net(normed_net, devices, {.statistics = statistics});
      ReplicaOptimizers optimizers(net, [](std::vector<Tensor> parameters) {
        return std::make_unique<nn::Sgd>(std::move(parameters), nn::SgdOptions{});
      });
      const Batch batch = random_batch(kRows, devices[0]);
      const Tensor first = net(batch.x), second = net(batch.x);
      backward(sum_loss(first, batch.y));
      optimizers.step(0.1F);
      const std::string error = error_of([&] { backward(sum_loss(second, batch.y)); });
      EXPECT_NE(error.find("the weight [3, 16] of 'linear' was overwritten after forward had used it"),
                std::string::npos)
          << error;
      EXPECT_NE(error_of([&] { optimizers.step(0.1F); }).find("or failed"), std::string::npos);
      // The next step is as if nothing had happened.
      net.zero_grad();
      accumulate(net, batch, 0, kRows);
      optimizers.step(0.1F);
      for (const auto& replica : net.replicas()) EXPECT_EQ(weights_of(*replica), weights_of(net.module()));
    }
}

TEST(DataParallel, RefusesToGoBackThroughAnInputThatWasRefilled) {
  const std::vector<Device> devices = make_devices(2);
  DataParallel net(plain_net, devices);
  const Batch batch = random_batch(kRows, devices[0]);
  const Tensor y = net(batch.x);
  batch.x.copy_from(random_batch(kRows, devices[0], 5).x);
  EXPECT_NE(error_of([&] { backward(sum_loss(y, batch.y)); }).find("the input [7, 6, 6, 1] of 'conv2d'"),
            std::string::npos);
}

TEST(Allreduce, CountsAsOverwritingItsBuffers) {
  for (const int k : {1, 2}) {
    std::vector<Tensor> data;
    for (const Device& device : make_devices(k)) data.push_back(Tensor::zeros({2, 3}, device));
    const Device device = data[0].device();
    Tensor w = Tensor::zeros({3, 3}, device);
    w.set_requires_grad(true);
    const Tensor y = nn::linear(data[0], w, Tensor::zeros({3}, device));
    collective::allreduce(data);
    if (k == 1) {
      backward(y, y.detach());  // the sum of one is itself
      continue;
    }
    EXPECT_NE(error_of([&] { backward(y, y.detach()); }).find("the input [2, 3] of 'linear'"),
              std::string::npos);
  }
}

TEST(ReplicaOptimizers, RefuseToStepOnGradientsThatAreNotSummed) {
  DataParallel net(plain_net, make_devices(2));
  ReplicaOptimizers optimizers(net, [](std::vector<Tensor> parameters) {
    return std::make_unique<nn::Sgd>(std::move(parameters), nn::SgdOptions{});
  });
  const Batch batch = random_batch(4, net.devices()[0]);
  {
    const auto apart = net.no_sync();
    accumulate(net, batch, 0, 4);
  }
  EXPECT_EQ(error_of([&] { optimizers.step(0.1F); }),
            "ReplicaOptimizers: the gradients are not summed, since the last backward ran under no_sync() or "
            "failed: let the last one before a step run outside of it, or start again with zero_grad()");
}

// y = always(x), plus sometimes(x) in replica 1; `never` is not used.
class Choosy : public nn::Module {
 public:
  explicit Choosy(const Device& device)
      : always_(std::make_shared<nn::Linear>(36, kClasses, device)),
        sometimes_(std::make_shared<nn::Linear>(36, kClasses, device)),
        uses_all_(device.index() == 1) {
    add_child("always", always_);
    add_child("never", std::make_shared<nn::Linear>(36, kClasses, device));
    add_child("sometimes", sometimes_);
    nn::initialise(*this, nn::Init::kaiming, kSeed);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor flat = nn::flatten(x), y = always_->forward(flat);
    return uses_all_ && use_ ? nn::add(y, sometimes_->forward(flat)) : y;
  }
  std::string describe() const override { return "Choosy"; }
  static inline bool use_ = true;

 private:
  std::shared_ptr<nn::Linear> always_, sometimes_;
  bool uses_all_;
};

TEST(DataParallel, GivesNoGradientToAParameterThatNoReplicaUsed) {
  DataParallel net([](const Device& device) { return std::make_shared<Choosy>(device); }, make_devices(3));
  const Batch batch = random_batch(kRows, net.devices()[0]);
  accumulate(net, batch, 0, kRows);
  // What replica 1 alone used: the gradient of its shard, everywhere.
  const auto one = std::make_shared<Choosy>(net.devices()[1]);
  const Batch shard{batch.x.slice(5, 9).copy_to(net.devices()[1]),
                    batch.y.slice(5, 9).copy_to(net.devices()[1])};
  backward(sum_loss(one->forward(shard.x), shard.y));
  const Lists want = gradients_of(*one);
  for (const auto& replica : net.replicas()) {
    const std::vector<nn::Parameter> parameters = replica->named_parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      const Tensor gradient = parameters[p].value.grad();
      EXPECT_EQ(gradient.defined(), !parameters[p].name.starts_with("never")) << parameters[p].name;
      if (!parameters[p].name.starts_with("sometimes")) continue;
      EXPECT_EQ(gradient.to_host<float>(), want[p]) << parameters[p].name;
    }
  }
}

TEST(DataParallel, FindsAParameterAgainThatALaterBatchUses) {
  DataParallel net([](const Device& device) { return std::make_shared<Choosy>(device); }, make_devices(2));
  const Batch batch = random_batch(6, net.devices()[0]);
  Choosy::use_ = false;
  accumulate(net, batch, 0, 6);
  EXPECT_FALSE(net.module().named_parameters()[4].value.grad().defined());
  Choosy::use_ = true;
  accumulate(net, batch, 0, 6);
  const Tensor got = net.module().named_parameters()[4].value.grad();
  ASSERT_TRUE(got.defined());
  net.zero_grad();
  accumulate(net, batch, 0, 6);
  EXPECT_EQ(got.to_host<float>(), net.module().named_parameters()[4].value.grad().to_host<float>());
  for (const auto& replica : net.replicas()) EXPECT_EQ(gradients_of(*replica), gradients_of(net.module()));
}

TEST(ReplicaOptimizers, LeaveAParameterAloneThatNoReplicaUsed) {
  DataParallel net([](const Device& device) { return std::make_shared<Choosy>(device); }, make_devices(2));
  ReplicaOptimizers optimizers(net, [](std::vector<Tensor> parameters) {
    return std::make_unique<nn::Sgd>(std::move(parameters),
                                     nn::SgdOptions{.momentum = 0.9F, .weight_decay = 0.1F});
  });
  const Batch batch = random_batch(6, net.devices()[0]);
  const auto step = [&](bool use) {
    Choosy::use_ = use;
    net.zero_grad();
    accumulate(net, batch, 0, 6);
    optimizers.step(0.1F, 1.0F / 6);
  };
  const Lists start = weights_of(net.module());
  step(true);  // gives `sometimes` a momentum
  const Lists before = weights_of(net.module());
  step(false);
  Choosy::use_ = true;
  const Lists after = weights_of(net.module());
  const std::vector<nn::Parameter> parameters = net.module().named_parameters();
  for (size_t p = 0; p < parameters.size(); ++p) {
    const bool never = parameters[p].name.starts_with("never");
    const bool always = parameters[p].name.starts_with("always");
    EXPECT_EQ(before[p] == start[p], never) << parameters[p].name;
    EXPECT_EQ(after[p] == before[p], !always) << parameters[p].name;
  }
  EXPECT_EQ(weights_of(*net.replicas()[1]), after);
}

TEST(DataParallel, SendsParametersAndBuffersOfReplicaZeroToAll) {
  int made = 0;
  DataParallel net(
      [&made](const Device& device) {
        const DeviceGuard guard(device);
        const auto replica = normed_net(device);
        nn::initialise(*replica, nn::Init::kaiming, static_cast<uint64_t>(++made));
        for (const nn::Buffer& buffer : replica->named_buffers())
          kernels::fill(buffer.value.data<float>(), static_cast<float>(made), buffer.value.size(),
                        device.stream());
        return replica;
      },
      make_devices(3));
  EXPECT_EQ(buffers_of(net.module())[0], std::vector<float>(4, 1.0F));
  for (const auto& replica : net.replicas()) {
    EXPECT_EQ(weights_of(*replica), weights_of(net.module()));
    EXPECT_EQ(buffers_of(*replica), buffers_of(net.module()));
  }
  net.module().named_parameters()[0].value.copy_from(Tensor::zeros({4, 3, 3, 1}, net.devices()[0]));
  net.broadcast();
  EXPECT_EQ(weights_of(*net.replicas()[2])[0], std::vector<float>(36, 0.0F));
}

// A module of the given parameters and buffers, all [size].
class Made : public nn::Module {
 public:
  struct Entry {
    std::string name;
    int64_t size;
  };
  Made(const std::vector<Entry>& parameters, const std::vector<Entry>& buffers, const Device& device) {
    for (const auto& [name, size] : parameters) add_parameter(name, {size}, device);
    for (const auto& [name, size] : buffers) add_buffer(name, {size}, device, 0);
  }
  Tensor forward(const Tensor& x) override { return x; }
  std::string describe() const override { return "Made"; }
};

TEST(DataParallel, NamesTheParameterAndTheReplicaThatDiffer) {
  using Entries = std::vector<Made::Entry>;
  const Entries alike{{"a", 2}, {"b", 3}};
  const std::vector<Device> devices = make_devices(3);
  const auto error = [&](const Entries& parameters, const Entries& buffers = {{"s", 1}}) {
    return error_of([&] {
      DataParallel net(
          [&](const Device& device) {
            const bool other = device == devices[2];
            return std::make_shared<Made>(other ? parameters : alike, other ? buffers : Entries{{"s", 1}},
                                          device);
          },
          devices);
    });
  };
  EXPECT_EQ(error({{"a", 2}, {"b", 4}}),
            "DataParallel: parameter 'b' has shape [3] in replica 0 but [4] in replica 2: make all replicas "
            "alike");
  EXPECT_EQ(error({{"a", 2}}),
            "DataParallel: replica 2 has no parameter 'b', which replica 0 has: make all replicas alike");
  EXPECT_EQ(error({{"a", 2}, {"b", 3}, {"c", 1}}),
            "DataParallel: replica 2 has a parameter 'c', which replica 0 has not: make all replicas alike");
  EXPECT_EQ(error({{"b", 3}, {"a", 2}}),
            "DataParallel: parameter 0 is 'a' in replica 0 but 'b' in replica 2: make all replicas alike");
  EXPECT_EQ(error(alike, {}),
            "DataParallel: replica 2 has no buffer 's', which replica 0 has: make all replicas alike");
  EXPECT_EQ(error(alike, {{"s", 2}}),
            "DataParallel: buffer 's' has shape [1] in replica 0 but [2] in replica 2: make all replicas "
            "alike");
  EXPECT_EQ(error_of([&] {
              DataParallel net(
                  [&](const Device&) { return std::make_shared<Made>(alike, alike, devices[0]); }, devices);
            }),
            "DataParallel: parameter 'a' of replica 1 is on device 0, not on device 1: make all replicas "
            "alike");
}

TEST(DataParallel, RefusesBatchesAndOutputsThatCannotBe) {
  const std::vector<Device> devices = make_devices(2);
  DataParallel net(plain_net, devices);
  EXPECT_EQ(error_of([&] { net(Tensor::zeros({0, 6, 6, 1}, devices[0])); }),
            "DataParallel: a batch of shape [0, 6, 6, 1] has no rows");
  EXPECT_EQ(error_of([&] { net.forward({random_batch(2, devices[0]).x}); }),
            "DataParallel: 1 shards for 2 replicas");
  EXPECT_EQ(error_of([&] { net.forward({random_batch(2, devices[0]).x, random_batch(2, devices[0]).x}); }),
            "DataParallel: shard 1 is on device 0, its replica on device 1");
  class Total : public nn::Module {
   public:
    Tensor forward(const Tensor& x) override { return Tensor::zeros({1}, x.device()); }
    std::string describe() const override { return "Total"; }
  };
  DataParallel total([](const Device&) { return std::make_shared<Total>(); }, devices);
  EXPECT_EQ(error_of([&] { total(random_batch(3, devices[0]).x); }),
            "DataParallel: replica 0 made float32 [1] of a shard of 2 rows: outputs must be [rows, ...], and "
            "alike in all replicas");
}

// A place in a stream that is passed when open() is called, or when half a minute is over.
class Gate {
 public:
  void open() { open_ = true; }
  void close() { open_ = false; }
  bool came_too_late() const { return late_; }
  void enqueue(cudaStream_t stream) { LOCKSTEP_CUDA(cudaLaunchHostFunc(stream, wait, this)); }

 private:
  static void wait(void* self) {
    auto& gate = *static_cast<Gate*>(self);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!gate.open_ && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (!gate.open_) gate.late_ = true;
  }
  std::atomic<bool> open_ = false, late_ = false;
};

// Passes x on, behind a gate on device 0.
class Gated : public nn::Module {
 public:
  explicit Gated(Gate* gate) : gate_(gate) {}
  Tensor forward(const Tensor& x) override {
    if (x.device().index() == 0) gate_->enqueue(x.device().stream());
    return record("gated", x, {x}, [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
  }
  std::string describe() const override { return "Gated"; }

 private:
  Gate* gate_;
};

// Records an event behind what is before it.
class Marked : public nn::Module {
 public:
  explicit Marked(Event* event) : event_(event) {}
  Tensor forward(const Tensor& x) override {
    event_->record(x.device().stream());
    return x;
  }
  std::string describe() const override { return "Marked"; }

 private:
  Event* event_;
};

TEST(DataParallel, RunsReplicasAtTheSameTimeAndLetsTheHostGoOn) {
  const std::vector<Device> devices = make_devices(2);
  Gate gate;
  std::vector<Event> events;
  for (const Device& device : devices) {
    const DeviceGuard guard(device);
    events.emplace_back();
  }
  DataParallel net(
      [&](const Device& device) {
        auto made = std::make_shared<nn::Sequential>();
        made->add(std::make_shared<Gated>(&gate)).add(plain_net(device));
        made->add(std::make_shared<Marked>(&events[static_cast<size_t>(device.index())]));
        return made;
      },
      devices);
  const Batch batch = random_batch(8, devices[0]);
  gate.open();
  backward(sum_loss(net(batch.x), batch.y));  // what is loaded and allocated at the first use may wait
  for (const Device& device : devices) device.synchronize();
  net.zero_grad();
  gate.close();
  // While device 0 stands at its gate, the host enqueues forward and backward of both, and device 1 computes.
  const Tensor y = net(batch.x);
  backward(sum_loss(y, batch.y));
  if (devices[0].physical() != devices[1].physical()) events[1].synchronize();
  EXPECT_FALSE(gate.came_too_late());
  EXPECT_EQ(cudaEventQuery(events[0].get()), cudaErrorNotReady);
  gate.open();
  for (const Device& device : devices) device.synchronize();
  EXPECT_FALSE(gate.came_too_late());
  EXPECT_EQ(gradients_of(*net.replicas()[1]), gradients_of(net.module()));
}

}  // namespace
}  // namespace lockstep::parallel
