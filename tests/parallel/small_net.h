// A small residual network with random images, for the tests of DataParallel.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "core/autograd.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "parallel/data_parallel.h"

namespace lockstep::parallel {

inline constexpr unsigned kSeed = 17;
inline constexpr int64_t kClasses = 3;

// 6x6 images of one channel to 3 logits; batch norms unless `plain`.
inline std::shared_ptr<nn::Module> small_net(const Device& device, bool plain = false) {
  auto net = std::make_shared<nn::Sequential>();
  net->add("conv", std::make_shared<nn::Conv2d>(1, 4, 3, device, nn::Window{1, 1}));
  if (plain) {
    net->add("relu", std::make_shared<nn::ReLU>());
  } else {
    net->add("bn", std::make_shared<nn::BatchNorm2d>(4, device, nn::Activation::relu));
    net->add("block", std::make_shared<nn::Residual>(4, 4, device));
  }
  net->add("pool", std::make_shared<nn::AdaptiveAvgPool2d>(2, 2));
  net->add("flatten", std::make_shared<nn::Flatten>());
  net->add("fc", std::make_shared<nn::Linear>(16, kClasses, device));
  nn::initialise(*net, nn::Init::kaiming, kSeed);
  return net;
}
inline std::shared_ptr<nn::Module> plain_net(const Device& device) {
  return small_net(device, true);
}
inline std::shared_ptr<nn::Module> normed_net(const Device& device) {
  return small_net(device, false);
}

struct Batch {
  Tensor x, y;
};

inline Batch random_batch(int64_t rows, const Device& device, unsigned seed = kSeed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> pixel(0.5F, 1.0F);
  std::vector<float> images(static_cast<size_t>(rows) * 36);
  std::vector<int32_t> labels(static_cast<size_t>(rows));
  for (float& value : images) value = pixel(random);
  for (int32_t& label : labels) label = static_cast<int32_t>(random() % kClasses);
  return {Tensor::from_host(images, {rows, 6, 6, 1}, device), Tensor::from_host(labels, {rows}, device)};
}

inline Tensor sum_loss(const Tensor& logits, const Tensor& labels) {
  return nn::cross_entropy(logits, labels, nn::Reduction::sum);
}

using Lists = std::vector<std::vector<float>>;

inline Lists values_of(const std::vector<Tensor>& tensors) {
  Lists values;
  for (const Tensor& tensor : tensors)
    values.push_back(tensor.defined() ? tensor.to_host<float>() : std::vector<float>());
  return values;
}
inline Lists weights_of(const nn::Module& module) {
  return values_of(module.parameters());
}
inline Lists gradients_of(const nn::Module& module) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : module.parameters()) gradients.push_back(parameter.grad());
  return values_of(gradients);
}
inline Lists buffers_of(const nn::Module& module) {
  std::vector<Tensor> buffers;
  for (const nn::Buffer& buffer : module.named_buffers()) buffers.push_back(buffer.value);
  return values_of(buffers);
}

// The largest difference, as a part of the largest value of all; 1 where the sizes differ.
inline double difference(const Lists& got, const Lists& want) {
  if (got.size() != want.size()) return 1;
  double largest = 0, apart = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i].size() != want[i].size()) return 1;
    for (size_t j = 0; j < want[i].size(); ++j) {
      if (!std::isfinite(got[i][j])) return 1;
      largest = std::max(largest, std::abs(static_cast<double>(want[i][j])));
      apart = std::max(apart, std::abs(static_cast<double>(got[i][j]) - want[i][j]));
    }
  }
  return largest == 0 ? apart : apart / largest;
}

// Plain gradient descent, one step of one module: w -= rate * gradient.
inline void descend(const nn::Module& module, float rate) {
  for (const Tensor& parameter : module.parameters()) {
    std::vector<float> weights = parameter.to_host<float>();
    const std::vector<float> gradient = parameter.grad().to_host<float>();
    for (size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * gradient[i];
    parameter.copy_from(Tensor::from_host(weights, parameter.shape(), parameter.device()));
  }
}

}  // namespace lockstep::parallel
