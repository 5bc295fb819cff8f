// Images/s of ResNet-18's training steps on one device: forward, cross-entropy, backward, SGD (momentum 0.9,
// Nesterov, weight decay 5e-4) on a batch that lies ready. Blocks of steps, then one JSON line: the median
// block's images/s, the best block's, and the most memory that the process had. bench/compare_resnet runs it
// in turns with PyTorch; HOSTCUDA_THREADS sets the threads.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/autograd.h"
#include "core/pool.h"
#include "kernels/check.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/models/resnet.h"
#include "nn/sgd.h"

namespace {

using namespace lockstep;

struct Options {
  int64_t batch_size = 64;
  int blocks = 5, steps = 3, warm_up = 3;
  std::string precision = "fp32";
};

const std::map<std::string, kernels::Precision> kPrecisions = {{"fp32", kernels::Precision::fp32},
                                                               {"tf32", kernels::Precision::tf32},
                                                               {"bf16", kernels::Precision::bf16}};

Tensor random_images(int64_t count, const Device& device) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count) * 28 * 28);
  for (float& value : values) value = normal(generator);
  return Tensor::from_host(values, {count, 28, 28, 1}, device);
}

Tensor some_labels(int64_t count, const Device& device) {
  std::vector<int32_t> labels(static_cast<size_t>(count));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % 10);
  return Tensor::from_host(labels, {count}, device);
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void measure(const Options& options) {
  const Device device = make_devices(1)[0];
  device.use_precision(kPrecisions.at(options.precision));
  const auto net = nn::resnet18(10, 1, device);
  nn::initialise(*net, nn::Init::kaiming, 0);
  const std::vector<Tensor> parameters = net->parameters();
  nn::Sgd sgd(parameters, {.momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true});
  const Tensor images = random_images(options.batch_size, device);
  const Tensor labels = some_labels(options.batch_size, device);
  const auto seconds_of = [&](int steps) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) {
      for (const Tensor& parameter : parameters) parameter.set_grad({});
      backward(nn::cross_entropy(net->forward(images), labels, nn::Reduction::mean));
      sgd.step(0.01f);
    }
    device.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds_of(options.warm_up);
  std::vector<double> rates;
  for (int block = 0; block < options.blocks; ++block)
    rates.push_back(options.steps * static_cast<double>(options.batch_size) / seconds_of(options.steps));
  std::sort(rates.begin(), rates.end());
  fmt::print(
      "{{\"program\": \"Lockstep, {}\", \"images_per_second\": {:.2f}, \"best_images_per_second\": {:.2f}, "
      "\"peak_mib\": {:.1f}, \"device_peak_mib\": {:.1f}, \"batch_size\": {}, \"precision\": \"{}\"}}\n",
      device_summary({device}), rates[rates.size() / 2], rates.back(), peak_mib(),
      static_cast<double>(device.pool().statistics().peak) / (1 << 20), options.batch_size,
      options.precision);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Images/s of ResNet-18's training steps, as one JSON line");
  app.add_option("--batch-size", options.batch_size, "images per step")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--blocks", options.blocks, "blocks of steps, whose median counts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "steps per block")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--warm-up", options.warm_up, "steps before the first block")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--precision", options.precision, "fp32, tf32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember(kPrecisions));
  CLI11_PARSE(app, argc, argv);
  try {
    measure(options);
    if (std::fflush(stdout) != 0) throw Error("standard output cannot be written");
  } catch (const std::exception& error) {
    fmt::print(stderr, "resnet_step: {}\n", error.what());
    return 1;
  }
}
