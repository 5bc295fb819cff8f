// The promise, held with a real network: k replicas of LeNet move in lockstep, one step with k devices
// differs from one with a single device by rounding only, and neither runs nor physical devices change a bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "nn/init.h"
#include "nn/layers.h"
#include "nn/models/lenet.h"
#include "parallel/replicas.h"
#include "tests/parallel/checksum.h"

namespace lockstep::parallel {
namespace {

constexpr int kRows = 19;  // uneven for every number of devices from 2 to 8
constexpr unsigned kSeed = 11;

// The weights of all k replicas, by replica and parameter, after some steps on random images and labels.
std::vector<std::vector<std::vector<float>>> weights_after(
    int steps, int k, collective::Algorithm algorithm = collective::ring) {
  const std::vector<Device> devices = make_devices(k);
  const auto model = nn::lenet(nn::LeNet::article, devices[0]);
  nn::initialise(*model, nn::Init::kaiming, kSeed);
  std::vector<std::vector<Tensor>> device_params;
  for (const Device& device : devices) device_params.push_back(get_params(model->parameters(), device));
  const Network net = [&](const Tensor& x, const std::vector<Tensor>& params) {
    model->set_parameters(params);
    return model->forward(x);
  };
  const Loss loss = [](const Tensor& y_hat, const Tensor& y) {
    return nn::cross_entropy(y_hat, y, nn::Reduction::sum);
  };

  std::mt19937 random(kSeed);
  std::normal_distribution<float> pixel;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> images(kRows * 28 * 28);
    std::vector<int32_t> labels(kRows);
    for (float& value : images) value = pixel(random);
    for (int32_t& label : labels) label = static_cast<int32_t>(random() % 10);
    train_batch(Tensor::from_host(images, {kRows, 28, 28, 1}, devices[0]),
                Tensor::from_host(labels, {kRows}, devices[0]), device_params, devices, 0.1f, net, loss,
                algorithm);
    std::vector<std::string> names;
    for (const nn::Parameter& parameter : model->named_parameters()) names.push_back(parameter.name);
    EXPECT_EQ(first_difference(device_params, names), std::nullopt) << k << " devices, step " << step;
  }
  std::vector<std::vector<std::vector<float>>> weights;
  for (const auto& replica : device_params) {
    weights.emplace_back();
    for (const Tensor& param : replica) weights.back().push_back(param.to_host<float>());
  }
  return weights;
}

TEST(LenetReplicas, OneStepOnManyDevicesDiffersFromOneByRoundingOnly) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  const auto one = weights_after(1, 1)[0];
  float largest = 0;
  for (const auto& param : one)
    for (const float value : param) largest = std::max(largest, std::abs(value));
  const auto start = weights_after(0, 1)[0];
  EXPECT_NE(one, start) << "the step changed nothing";
  for (int k = 2; k <= 8; ++k) {
    const auto many = weights_after(1, k)[0];
    float difference = 0;
    for (size_t p = 0; p < one.size(); ++p)
      for (size_t i = 0; i < one[p].size(); ++i)
        difference = std::max(difference, std::abs(many[p][i] - one[p][i]));
    // 1e-6 of the largest weight is 8 roundings of it: the sums have another order, nothing else.
    EXPECT_LE(difference, 1e-6f * largest) << k << " devices";
  }
}

TEST(LenetReplicas, RunsGiveTheSameBits) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  for (const auto& [name, algorithm, in_chunks] : collective::algorithms())
    EXPECT_EQ(weights_after(3, 4, algorithm), weights_after(3, 4, algorithm));
}

TEST(LenetReplicas, PrintAChecksumOfTheirWeights) {
  for (const std::string& name : collective::algorithm_names())
    print_checksum(name, weights_after(3, 4, collective::algorithm_named(name)));
}

}  // namespace
}  // namespace lockstep::parallel
