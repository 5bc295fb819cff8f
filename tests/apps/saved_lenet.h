// A weights file of a LeNet that says the same of every image: for tests of what programs make of it.
#pragma once

#include <array>
#include <cmath>
#include <filesystem>
#include <vector>

#include "apps/common/models.h"
#include "nn/io/checkpoint.h"
#include "nn/io/state_dict.h"

namespace lockstep::apps {

// All weights are 0, the last biases the logarithms of the ten probabilities.
inline std::vector<data::HostTensor> lenet_that_says(const std::array<double, 10>& probabilities,
                                                     const Model& model) {
  const auto module = model.make(make_devices(1)[0]);
  std::vector<float> biases;
  for (const double p : probabilities) biases.push_back(static_cast<float>(std::log(p)));
  const Tensor bias = module->parameters().back();
  bias.copy_from(Tensor::from_host(biases, bias.shape(), bias.device()));
  return nn::state_dict(*module);
}

inline void write_weights(const std::filesystem::path& path, const std::vector<data::HostTensor>& tensors,
                          ModelDescription description) {
  description["format"] = nn::kWeightsFormat;
  data::write_safetensors(path, tensors, description);
}

}  // namespace lockstep::apps
