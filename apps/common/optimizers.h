// The optimizers that --optimizer chooses from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/optimizer.h"

namespace lockstep::apps {

// What the options say to all of them.
struct OptimizerNumbers {
  double momentum;
  float weight_decay;
  nn::DecayOn decay_on;
};

struct OptimizerChoice {
  std::string name, about;
  // Where nobody types them; without a value the program's own.
  std::optional<double> learning_rate, weight_decay;
  nn::MakeOptimizer (*make)(const OptimizerNumbers& numbers);
};

// To add one: nn/NAME.h and nn/NAME.cc, and its line in the table in optimizers.cc.
const std::vector<OptimizerChoice>& optimizers();
// Throws, naming the nearest, where there is none of that name.
const OptimizerChoice& optimizer_named(const std::string& name);

}  // namespace lockstep::apps
