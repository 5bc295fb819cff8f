// What does not work in the two articles as printed: each test shows the fault in this engine, then the right
// form. labs/article/README.md lists them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <type_traits>

#include "core/autograd.h"
#include "labs/article/d2l.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/models/lenet.h"
#include "nn/models/resnet.h"
#include "nn/schedule.h"
#include "nn/sgd.h"
#include "parallel/data_parallel.h"
#include "parallel/replica_optimizers.h"
#include "parallel/replicas.h"
#include "tests/error_of.h"

namespace lockstep::labs {
namespace {

using Replica = std::vector<Tensor>;
using Floats = std::vector<float>;

Tensor leaf(const Floats& values, const Shape& shape, const Device& device) {
  return Tensor::from_host(values, shape, device).set_requires_grad(true);
}

Tensor random_tensor(const Shape& shape, uint64_t seed, const Device& device) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(element_count(shape)));
  for (float& value : values) value = normal(generator);
  return Tensor::from_host(values, shape, device);
}

double norm(const Tensor& tensor) {
  double squares = 0;
  for (const float value : tensor.to_host<float>()) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// after - before
Floats change(const Tensor& before, const Tensor& after) {
  Floats result = after.to_host<float>();
  const Floats start = before.to_host<float>();
  for (size_t i = 0; i < result.size(); ++i) result[i] -= start[i];
  return result;
}

void expect_multiple(const Floats& got, const Floats& of, float factor) {
  ASSERT_EQ(got.size(), of.size());
  // Updates below 1 of weights below 4, in float32.
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], factor * of[i], 2e-6F) << i;
}

// One linear layer with three inputs and two classes, replicas of it, and a batch.
class Article : public testing::Test {
 protected:
  Tensor forward(const Tensor& x, const Replica& params) const { return nn::linear(x, params[0], params[1]); }

  // The gradients of a shard's loss, by the replica on its device.
  void back(size_t replica, int64_t begin, int64_t end, const std::vector<Replica>& replicas,
            nn::Reduction reduction) const {
    const Device& device = devices_[replica];
    const Tensor x = x_.slice(begin, end).copy_to(device), y = y_.slice(begin, end).copy_to(device);
    backward(nn::cross_entropy(forward(x, replicas[replica]), y, reduction));
  }

  std::vector<Replica> two_replicas() const {
    return {parallel::get_params(params_, devices_[0]), parallel::get_params(params_, devices_[1])};
  }

  // How far one right step moves the weights.
  Floats right_step(int64_t rows) const {
    const std::vector<Replica> replicas = two_replicas();
    parallel::train_batch(
        x_.slice(0, rows), y_.slice(0, rows), replicas, devices_, kRate,
        [this](const Tensor& x, const Replica& params) { return forward(x, params); },
        [](const Tensor& y_hat, const Tensor& y) { return nn::cross_entropy(y_hat, y, nn::Reduction::sum); });
    EXPECT_EQ(parallel::first_difference(replicas, {"weight", "bias"}), std::nullopt);
    return change(params_[0], replicas[0][0]);
  }

  static constexpr float kRate = 0.5F;
  const std::vector<Device> devices_ = make_devices(2);
  const Replica params_{random_tensor({2, 3}, 1, devices_[0]), random_tensor({2}, 2, devices_[0])};
  const Tensor x_ = random_tensor({8, 3}, 3, devices_[0]);
  const Tensor y_ = Tensor::from_host<int32_t>({0, 1, 1, 0, 1, 0, 0, 1}, {8}, devices_[0]);
};

// data[i] = data[0].to(...) gives the list another element; the gradient that the list was made of stays.
TEST_F(Article, AnAllreduceThatRebindsListElementsLeavesTheGradientsAlone) {
  const auto printed = [](std::vector<Tensor> data) {
    for (size_t i = 1; i < data.size(); ++i)
      data[0].copy_from(nn::add(data[0], data[i].copy_to(data[0].device())));
    for (size_t i = 1; i < data.size(); ++i) data[i] = data[0].copy_to(data[i].device());
  };
  std::vector<Tensor> params;
  for (size_t i = 0; i < 2; ++i) {
    params.push_back(leaf({0, 0}, {2}, devices_[i]));
    params[i].set_grad(Tensor::from_host(Floats(2, static_cast<float>(i + 1)), {2}, devices_[i]));
  }
  printed({params[0].grad(), params[1].grad()});
  EXPECT_EQ(params[0].grad().to_host<float>(), (Floats{3, 3}));
  EXPECT_EQ(params[1].grad().to_host<float>(), (Floats{2, 2}));  // its own, still

  params[0].grad().copy_from(Tensor::from_host<float>({1, 1}, {2}, devices_[0]));
  collective::allreduce({params[0].grad(), params[1].grad()});
  for (const Tensor& param : params) EXPECT_EQ(param.grad().to_host<float>(), (Floats{3, 3}));
}

TEST_F(Article, UpdatingReplica0AloneLeavesTheOthersAtTheirStart) {
  const std::vector<Replica> replicas = two_replicas();
  for (size_t i = 0; i < 2; ++i)
    back(i, static_cast<int64_t>(4 * i), static_cast<int64_t>(4 * i + 4), replicas, nn::Reduction::sum);
  for (size_t p = 0; p < 2; ++p) collective::allreduce({replicas[0][p].grad(), replicas[1][p].grad()});
  d2l::sgd(replicas[0], kRate, 8);
  const auto difference = parallel::first_difference(replicas, {"weight", "bias"});
  ASSERT_TRUE(difference);
  EXPECT_NE(difference->find("replica 1"), std::string::npos) << *difference;
  EXPECT_EQ(replicas[1][0].to_host<float>(), params_[0].to_host<float>());

  d2l::sgd(replicas[1], kRate, 8);
  EXPECT_EQ(parallel::first_difference(replicas, {"weight", "bias"}), std::nullopt);
}

// for param in device_params[0]: d2l.sgd(param, ...) walks over the rows of a tensor. In PyTorch a row has no
// gradient: "TypeError: unsupported operand type(s) for *: 'float' and 'NoneType'". Here it does not compile.
TEST_F(Article, ATensorIsNoListOfParametersAndItsRowsHaveNoGradients) {
  static_assert(!std::is_invocable_v<decltype(d2l::sgd), Tensor, float, int64_t>);
  static_assert(std::is_invocable_v<decltype(d2l::sgd), Replica, float, int64_t>);
  const Replica params = parallel::get_params(params_, devices_[0]);
  back(0, 0, 8, {params}, nn::Reduction::sum);
  ASSERT_TRUE(params[0].grad().defined());
  const Tensor row = params[0].detach().slice(0, 1);
  EXPECT_FALSE(row.grad().defined());
  d2l::sgd({row}, kRate, 8);
  EXPECT_EQ(params[0].to_host<float>(), params_[0].to_host<float>());
  d2l::sgd(params, kRate, 8);
  EXPECT_NE(params[0].to_host<float>(), params_[0].to_host<float>());
}

// nn.CrossEntropyLoss() is a mean over the shard, one number: .sum() does nothing to it. d2l.sgd divides by
// the batch once more.
TEST_F(Article, AMeanLossDividedByTheBatchMovesTheWeightsKOverBTimesTooLittle) {
  const std::vector<Replica> replicas = two_replicas();
  for (size_t i = 0; i < 2; ++i)
    back(i, static_cast<int64_t>(4 * i), static_cast<int64_t>(4 * i + 4), replicas, nn::Reduction::mean);
  for (size_t p = 0; p < 2; ++p) collective::allreduce({replicas[0][p].grad(), replicas[1][p].grad()});
  for (const Replica& replica : replicas) d2l::sgd(replica, kRate, 8);
  const Floats right = right_step(8);
  expect_multiple(change(params_[0], replicas[0][0]), right, 2.0F / 8);
  double largest = 0;
  for (const float moved : right) largest = std::max<double>(largest, std::abs(moved));
  EXPECT_GT(largest, 0.05) << "nothing moved";
}

// With three rows on two devices, the mean of the shards' means counts the last row twice as much as the
// others. PaddlePaddle's DataParallel averages so, where the last batch is not even.
TEST_F(Article, TheMeanOfUnevenShardsMeansIsNotTheMeanOfTheBatch) {
  const std::vector<Replica> replicas = two_replicas();
  back(0, 0, 2, replicas, nn::Reduction::mean);
  back(1, 2, 3, replicas, nn::Reduction::mean);
  for (size_t p = 0; p < 2; ++p) collective::allreduce({replicas[0][p].grad(), replicas[1][p].grad()});
  d2l::sgd(replicas[0], kRate, 2);
  const Floats printed = change(params_[0], replicas[0][0]), right = right_step(3);
  double apart = 0;
  for (size_t i = 0; i < right.size(); ++i) apart = std::max<double>(apart, std::abs(printed[i] - right[i]));
  EXPECT_GT(apart, 0.01);

  const std::vector<Replica> weighted = two_replicas();
  back(0, 0, 2, weighted, nn::Reduction::sum);
  back(1, 2, 3, weighted, nn::Reduction::sum);
  for (size_t p = 0; p < 2; ++p) collective::allreduce({weighted[0][p].grad(), weighted[1][p].grad()});
  d2l::sgd(weighted[0], kRate, 3);
  expect_multiple(change(params_[0], weighted[0][0]), right, 1);
}

// p.clone() is computed from p, a parameter. To ask it for gradients is an error ("RuntimeError: you can only
// change requires_grad flags of leaf variables"); without asking, they go on to p, and the clone's stays
// None.
TEST_F(Article, ACloneOfAParameterIsNoLeafAndGetsNoGradient) {
  const auto clone = [](const Tensor& p) {
    return record("clone", p.copy_to(p.device()), {p}, [](const Tensor& dy) { return Replica{dy}; });
  };
  const Replica originals = parallel::get_params(params_, devices_[0]);
  const Replica clones{clone(originals[0]), clone(originals[1])};
  EXPECT_NE(error_of([&] { Tensor(clones[0]).set_requires_grad(true); }), "");
  back(0, 0, 8, {clones}, nn::Reduction::sum);
  EXPECT_FALSE(clones[0].grad().defined());
  EXPECT_TRUE(originals[0].grad().defined());

  const Replica fresh = parallel::get_params(params_, devices_[0]);
  const Replica replica = parallel::get_params(fresh, devices_[0]);
  back(0, 0, 8, {replica}, nn::Reduction::sum);
  EXPECT_TRUE(replica[0].grad().defined());
  EXPECT_FALSE(fresh[0].grad().defined());
}

// Without clone(), .to(device) of what is there already is the same tensor: on one device (try_gpu(1) falls
// back to the CPU in silence) all replicas are one, and each update moves it again.
TEST_F(Article, ToOnTheSameDeviceGivesReplicasThatShareTheirMemory) {
  const auto to = [](const Tensor& tensor, const Device& device) {
    return tensor.device() == device ? tensor.detach() : tensor.copy_to(device);
  };
  const Tensor weight = leaf({1, 2}, {2}, devices_[0]), gradient = leaf({1, 1}, {2}, devices_[0]);
  const auto step = [&](Tensor first, Tensor second) {
    for (Tensor* replica : {&first, &second}) {
      replica->set_requires_grad(true);
      replica->set_grad(gradient.copy_to(devices_[0]));
    }
    for (const Tensor& replica : {first, second}) d2l::sgd({replica}, 0.25F, 1);
    return first.to_host<float>();
  };
  EXPECT_EQ(step(weight.copy_to(devices_[0]), weight.copy_to(devices_[0])), (Floats{0.75F, 1.75F}));
  EXPECT_EQ(weight.to_host<float>(), (Floats{1, 2}));
  EXPECT_EQ(step(to(weight, devices_[0]), to(weight, devices_[0])), (Floats{0.5F, 1.5F}));
  EXPECT_EQ(weight.to_host<float>(), (Floats{0.5F, 1.5F})) << "not even the original is left";
  const Replica copies = parallel::get_params({weight}, devices_[0]);
  EXPECT_NE(copies[0].data<float>(), weight.data<float>());
}

// nn.parallel.scatter cuts into pieces of ceil(rows / devices): nine rows are three pieces for four devices.
// zip() then drops the fourth replica, whose gradients are None in allreduce.
TEST_F(Article, ScatterMayGiveFewerShardsThanThereAreDevices) {
  const auto chunks = [](int64_t rows, int64_t parts) {
    const int64_t size = (rows + parts - 1) / parts;
    return (rows + size - 1) / size;
  };
  EXPECT_EQ(chunks(9, 4), 3);
  EXPECT_EQ(chunks(60000 % 256, 7), 7);
  EXPECT_EQ(chunks(36, 7), 6);
  EXPECT_EQ(parallel::split_sizes(9, 4), (std::vector<int64_t>{3, 2, 2, 2}));
  EXPECT_EQ(parallel::split_sizes(1, 3), (std::vector<int64_t>{1, 0, 0}));
}

// nn.Sequential's forward takes one input: "TypeError: forward() takes 2 positional arguments but 3 were
// given". A module computes with its own parameters; others are put in their place.
TEST_F(Article, AModuleTakesNoParametersButCanBeGivenThem) {
  static_assert(!std::is_invocable_v<nn::Module&, Tensor, Replica>);
  nn::Linear net(3, 2, devices_[0]);
  EXPECT_EQ(norm(net(x_)), 0);
  net.set_parameters(params_);
  EXPECT_EQ(net(x_).to_host<float>(), forward(x_, params_).to_host<float>());
}

// use_1x1conv=False, strides=2. In PyTorch the net is made, and its first batch ends in "The size of tensor a
// (4) must match the size of tensor b (7)".
TEST_F(Article, ABlockThatHalvesAndWidensNeedsAConvolutionInItsShortcut) {
  EXPECT_NE(error_of([&] {
              nn::Residual(64, 128, devices_[0], {.stride = 2});
            }).find("they cannot be added without a 1x1 convolution in the shortcut"),
            std::string::npos);
  nn::Residual block(64, 128, devices_[0], {.stride = 2, .shortcut = nn::Shortcut::projection});
  EXPECT_EQ(block(Tensor::zeros({2, 7, 7, 64}, devices_[0])).shape(), (Shape{2, 4, 4, 128}));
}

Shape after_the_last_stage(nn::ResNetStem stem, int64_t rows, const Device& device) {
  const auto net = nn::resnet18(10, 1, device, stem);
  Tensor x = Tensor::zeros({rows, 28, 28, 1}, device);
  for (const auto& [name, layer] : net->children()) {
    x = layer->forward(x);
    if (name == "resnet_block4") break;
  }
  return x.shape();
}

// 7x7 with stride 2, then pooling with stride 2: made for 224 x 224 pixels. Of 28 x 28 one position is left,
// and a replica with one row has one value per channel, which has no variance.
TEST_F(Article, TheStemForImageNetLeavesOnePositionOfAnImageOf28Pixels) {
  const NoGrad no_grad;
  EXPECT_EQ(after_the_last_stage(nn::ResNetStem::imagenet, 2, devices_[0]), (Shape{2, 1, 1, 512}));
  EXPECT_EQ(error_of([&] { after_the_last_stage(nn::ResNetStem::imagenet, 1, devices_[0]); }),
            "batch_norm: one value per channel has no variance: train with more rows or larger images");
  EXPECT_EQ(after_the_last_stage(nn::ResNetStem::small, 1, devices_[0]), (Shape{1, 4, 4, 512}));
}

// Normal(0, 0.01^2), as the PaddlePaddle article and the chapter start every net. The article's LeNet has no
// batch norm that would make up for it: what reaches its first layer is nothing, and it stays at 10 %.
TEST_F(Article, ANetWithoutBatchNormHardlyLeavesAStartOfSmallWeights) {
  const auto first_gradient = [&](nn::Module& net, nn::Init init) {
    nn::initialise(net, init, 0);
    const Tensor x = random_tensor({4, 28, 28, 1}, 5, devices_[0]);
    const Tensor y = Tensor::from_host<int32_t>({1, 2, 3, 4}, {4}, devices_[0]);
    for (const Tensor& parameter : net.parameters()) parameter.set_grad(Tensor());
    backward(nn::cross_entropy(net(x), y, nn::Reduction::mean));
    return norm(net.parameters()[0].grad());
  };
  const auto lenet = nn::lenet(nn::LeNet::article, devices_[0]);
  const double small = first_gradient(*lenet, nn::Init::normal);
  EXPECT_LT(small, 1e-4 * first_gradient(*lenet, nn::Init::kaiming));
  const auto resnet = nn::resnet18(10, 1, devices_[0]);
  EXPECT_GT(first_gradient(*resnet, nn::Init::normal), 1e3 * small);
}

std::shared_ptr<nn::Module> linear(const Device& device) {
  auto net = std::make_shared<nn::Linear>(3, 2, device);
  nn::initialise(*net, nn::Init::xavier, 4);
  return net;
}

// paddle.DataParallel averages gradients and splits nothing: without a distributed sampler every process
// reads the whole data set, and k devices take the step that one would have taken.
TEST_F(Article, DataThatNobodySplitsIsWorkDoneKTimes) {
  const std::vector<Replica> ranks = two_replicas();
  for (size_t rank = 0; rank < 2; ++rank) back(rank, 0, 8, ranks, nn::Reduction::mean);
  const Floats alone = ranks[0][0].grad().to_host<float>();
  collective::allreduce({ranks[0][0].grad(), ranks[1][0].grad()});
  Floats averaged = ranks[0][0].grad().to_host<float>();
  for (float& value : averaged) value /= 2;
  EXPECT_EQ(averaged, alone) << "the second device has added nothing";

  parallel::DataParallel net(linear, devices_);
  net(x_);
  EXPECT_EQ(net.rows_since_combined(), (std::vector<int64_t>{4, 4}));
}

// "The learning rate is adjusted automatically": it is what the caller gives, on any number of devices. Twice
// the batch wants twice the rate (Goyal et al., 2017), and that is asked for.
TEST_F(Article, NobodyAdjustsTheLearningRateToTheDevices) {
  const auto step = [&](int k) {
    parallel::DataParallel net(linear, make_devices(k));
    parallel::ReplicaOptimizers trainer(
        net, [](Replica params) { return std::make_unique<nn::Sgd>(std::move(params), nn::SgdOptions{}); });
    const Tensor before = net.module().parameters()[0].copy_to(devices_[0]);
    net.zero_grad();
    backward(nn::cross_entropy(net(x_), y_, nn::Reduction::mean));
    trainer.step(kRate);
    return change(before, net.module().parameters()[0]);
  };
  const Floats one = step(1);
  for (const int k : {2, 3, 8}) expect_multiple(step(k), one, 1);
  EXPECT_NE(one, Floats(6, 0));
  EXPECT_DOUBLE_EQ(nn::scaled_rate(0.1, 512, 256), 0.2);
}

// Each replica's batch norm sees its own shard. nn.DataParallel keeps replica 0's running statistics and
// forgets the others'; PaddlePaddle's processes each save their own.
TEST_F(Article, RunningStatisticsOfReplicasDifferUntilTheyAreCombined) {
  parallel::DataParallel net([](const Device& d) { return std::make_shared<nn::BatchNorm2d>(1, d); },
                             devices_);
  net(Tensor::from_host<float>({1, 3, 11, 13}, {4, 1, 1, 1}, devices_[0]));
  const auto mean = [&](size_t replica) { return net.replicas()[replica]->named_buffers()[0].value.item(); };
  EXPECT_FLOAT_EQ(mean(0), 0.1F * 2);
  EXPECT_FLOAT_EQ(mean(1), 0.1F * 12);
  net.combine_buffers();
  EXPECT_FLOAT_EQ(mean(0), 0.1F * 7);
  EXPECT_EQ(mean(0), mean(1));
}

}  // namespace
}  // namespace lockstep::labs
