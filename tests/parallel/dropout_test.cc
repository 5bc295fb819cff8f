// Dropout over several devices: every replica drops other elements, the same ones on every run.
#include <gtest/gtest.h>

#include <cmath>

#include "nn/io/state_dict.h"
#include "tests/parallel/checksum.h"
#include "tests/parallel/small_net.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kElements = 1024;  // a shard

// One seed for all replicas, as a factory gives it.
std::shared_ptr<nn::Module> dropping(const Device&) {
  auto net = std::make_shared<nn::Sequential>();
  net->add<nn::Dropout>("drop", 0.5F, uint64_t{7});
  return net;
}

// What each replica makes of ones, in `steps` calls.
std::vector<Lists> masks(DataParallel& net, int steps) {
  std::vector<Lists> masks(net.replicas().size());
  for (int step = 0; step < steps; ++step) {
    std::vector<Tensor> shards;
    for (const Device& device : net.devices())
      shards.push_back(Tensor::from_host(std::vector<float>(kElements, 1), {1, kElements}, device));
    const std::vector<Tensor> outputs = net.forward(shards);
    for (size_t r = 0; r < outputs.size(); ++r) masks[r].push_back(outputs[r].to_host<float>());
  }
  return masks;
}

// Independent masks agree in half of the elements; 5.5 standard deviations of 16 are exceeded once in 26
// million pairs.
TEST(Dropout, DrawsAnotherMaskOnEveryReplica) {
  DataParallel net(dropping, make_devices(8));
  const std::vector<Lists> all = masks(net, 2);
  std::vector<std::vector<float>> each;
  for (const Lists& of_replica : all)
    for (const std::vector<float>& mask : of_replica) each.push_back(mask);
  for (size_t a = 0; a < each.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      int alike = 0;
      for (size_t i = 0; i < kElements; ++i) alike += each[a][i] == each[b][i];
      EXPECT_NEAR(alike, kElements / 2, 5.5 * std::sqrt(kElements) / 2) << "masks " << a << " and " << b;
    }
}

TEST(Dropout, OfReplicaZeroDrawsWhatOneDeviceDraws) {
  const Device device = make_devices(1)[0];
  const auto alone = dropping(device);
  Lists want;
  for (int step = 0; step < 3; ++step)
    want.push_back((*alone)(Tensor::from_host(std::vector<float>(kElements, 1), {1, kElements}, device))
                       .to_host<float>());
  std::vector<Lists> before;
  for (const int k : {1, 2, 5}) {
    DataParallel net(dropping, make_devices(k));
    const std::vector<Lists> got = masks(net, 3);
    EXPECT_EQ(got[0], want) << k << " devices";
    for (size_t r = 0; r < before.size(); ++r)
      EXPECT_EQ(got[r], before[r]) << "replica " << r << " of " << k << ": its number alone counts";
    before = got;
  }
}

TEST(Dropout, GoesBackThroughEachReplicasOwnMask) {
  const std::vector<Device> devices = make_devices(3);
  DataParallel net(dropping, devices);
  Tensor x = Tensor::from_host(std::vector<float>(3 * kElements, 1), {3, kElements}, devices[0]);
  x.set_requires_grad(true);
  const Tensor y = net(x);
  backward(y, x.detach());
  EXPECT_EQ(x.grad().to_host<float>(), y.to_host<float>());
}

TEST(Dropout, AddedLaterDrawsAsItsReplica) {
  DataParallel net(dropping, make_devices(2));
  for (const auto& replica : net.replicas()) {
    auto later = std::make_shared<nn::Sequential>();
    later->add<nn::Dropout>("drop", 0.5F, uint64_t{8});
    dynamic_cast<nn::Sequential&>(*replica).add("later", later);
  }
  const auto kept = [&](size_t r) {
    const auto& later = net.replicas()[r]->children()[1].second;
    return (*later)(Tensor::from_host(std::vector<float>(kElements, 1), {kElements}, net.devices()[r]))
        .to_host<float>();
  };
  EXPECT_NE(kept(0), kept(1));
}

TEST(Dropout, GoesOnWithItsOwnMasksFromASavedState) {
  DataParallel whole(dropping, make_devices(3)), resumed(dropping, make_devices(3));
  masks(whole, 2);
  for (size_t r = 0; r < 3; ++r)
    nn::load_replica_state(*resumed.replicas()[r], nn::replica_state(*whole.replicas()[r]), "x");
  EXPECT_EQ(masks(resumed, 2), masks(whole, 2));
}

TEST(DropoutReplicas, PrintAChecksumOfTheirWeights) {
  DataParallel net(dropping, make_devices(4));
  print_checksum("masks of dropout", masks(net, 2));
}

}  // namespace
}  // namespace lockstep::parallel
