// How much a training step enqueues: on a GPU each launch costs host time, and a small kernel is over before
// the next one is there. hostcuda counts.
#include <gtest/gtest.h>
#include <hostcuda/statistics.h>

#include <cstdio>

#include "nn/init.h"
#include "nn/layers.h"
#include "nn/models/lenet.h"
#include "nn/models/resnet.h"
#include "nn/sgd.h"
#include "parallel/trainer.h"

namespace lockstep::parallel {
namespace {

// Kernels and library calls of a step on `k` devices, once everything is set up.
uint64_t launches_of_a_step(const MakeModule& make, int k, int64_t rows, float max_norm) {
  const std::vector<Device> devices = make_devices(k);
  Trainer trainer(make, devices,
                  {.make_optimizer =
                       [](std::vector<Tensor> parameters) {
                         return std::make_unique<nn::Sgd>(
                             std::move(parameters),
                             nn::SgdOptions{.momentum = 0.9F, .weight_decay = 5e-4F, .nesterov = true});
                       },
                   .max_gradient_norm = max_norm});
  nn::initialise(trainer.net().module(), nn::Init::kaiming, 0);
  trainer.net().broadcast();
  std::vector<data::LabelledBatch> shards;
  for (const Device& device : devices)
    shards.push_back({Tensor::zeros({rows, 28, 28, 1}, device), Tensor::zeros({rows}, device, DType::int32)});
  for (int step = 0; step < 2; ++step) trainer.step(shards, 0.01F);
  const uint64_t before = hostcuda::launches().all();
  trainer.step(shards, 0.01F);
  const uint64_t counted = hostcuda::launches().all() - before;
  trainer.report();
  std::printf("%llu launches a step\n", static_cast<unsigned long long>(counted));
  return counted;
}

// On a GPU 3 fewer: its kernels for few channels read the weights as they lie.
TEST(Launches, OfAStepOfLeNet) {
  EXPECT_LE(launches_of_a_step([](const Device& d) { return nn::lenet(nn::LeNet::article, d); }, 1, 4, 0.5F),
            43U);
}

TEST(Launches, OfAStepOfResNet18InBfloat16) {
  for (const Device& device : make_devices(1)) device.use_precision(kernels::Precision::bf16);
  const uint64_t counted =
      launches_of_a_step([](const Device& d) { return nn::resnet18(10, 1, d); }, 1, 2, 5.0F);
  for (const Device& device : make_devices(1)) device.use_precision(kernels::Precision::fp32);
  EXPECT_LE(counted, 220U);
}

TEST(Launches, OfAStepOfResNet18) {
  EXPECT_LE(launches_of_a_step([](const Device& d) { return nn::resnet18(10, 1, d); }, 1, 2, 5.0F), 200U);
}

// --- what an allreduce enqueues

hostcuda::Launches calls_of(collective::Algorithm algorithm, int k) {
  const std::vector<Device> devices = make_devices(k);
  std::vector<Tensor> data;
  for (const Device& device : devices)
    data.push_back(Tensor::zeros({11'000'000}, device));  // as ResNet-18 has
  collective::Allreduce reduce(devices, algorithm);
  reduce(data);
  const hostcuda::Launches before = hostcuda::launches();
  reduce(data);
  const hostcuda::Launches now = hostcuda::launches();
  const hostcuda::Launches calls{now.kernels - before.kernels, now.library_calls - before.library_calls,
                                 now.copies - before.copies, now.events - before.events};
  std::printf("%llu kernels, %llu copies, %llu events\n", static_cast<unsigned long long>(calls.kernels),
              static_cast<unsigned long long>(calls.copies), static_cast<unsigned long long>(calls.events));
  for (const Device& device : devices) device.synchronize();
  return calls;
}

// A ring's hop needs what its left neighbour has just done: an event recorded and waited for, each.
TEST(HostCalls, OfARingOver8) {
  const hostcuda::Launches calls = calls_of(collective::ring, 8);
  EXPECT_EQ(calls.kernels, 56U);
  EXPECT_EQ(calls.copies, 56U);
  EXPECT_LE(calls.events, 240U);
}

// Nothing of a star waits for anything but the hub; a fused plan is one kernel per rank that sums.
TEST(HostCalls, OfStarsOver8) {
  const hostcuda::Launches star = calls_of(collective::star, 8);
  EXPECT_EQ(star.kernels, 7U);
  EXPECT_EQ(star.copies, 7U);
  EXPECT_LE(star.events, 36U);
  const hostcuda::Launches one_shot = calls_of(collective::one_shot, 8);
  EXPECT_EQ(one_shot.kernels, 1U);
  EXPECT_EQ(one_shot.copies, 0U);
  EXPECT_LE(one_shot.events, 22U);
  const hostcuda::Launches two_shot = calls_of(collective::two_shot, 8);
  EXPECT_EQ(two_shot.kernels, 8U);
  EXPECT_EQ(two_shot.copies, 0U);
  EXPECT_LE(two_shot.events, 128U);
}

}  // namespace
}  // namespace lockstep::parallel
