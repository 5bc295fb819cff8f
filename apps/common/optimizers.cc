#include "apps/common/optimizers.h"

#include "core/names.h"
#include "nn/adam.h"
#include "nn/sgd.h"

namespace lockstep::apps {
namespace {

nn::MakeOptimizer make_sgd(const OptimizerNumbers& numbers) {
  const nn::SgdOptions sgd{.momentum = static_cast<float>(numbers.momentum),
                           .weight_decay = numbers.weight_decay,
                           .nesterov = numbers.momentum > 0};
  return [sgd, decay_on = numbers.decay_on](std::vector<Tensor> parameters) {
    return std::make_unique<nn::Sgd>(std::move(parameters), sgd, decay_on);
  };
}

template <bool kDecoupled>
nn::MakeOptimizer make_adam(const OptimizerNumbers& numbers) {
  const nn::AdamOptions adam{
      .beta1 = numbers.momentum, .weight_decay = numbers.weight_decay, .decoupled = kDecoupled};
  return [adam, decay_on = numbers.decay_on](std::vector<Tensor> parameters) {
    return std::make_unique<nn::Adam>(std::move(parameters), adam, decay_on);
  };
}

}  // namespace

const std::vector<OptimizerChoice>& optimizers() {
  // The numbers are PyTorch's defaults.
  static const std::vector<OptimizerChoice> table{
      {"sgd", "steps down the gradient", {}, {}, make_sgd},
      {"adam", "each weight at a rate of its own", 1e-3, 0, make_adam<false>},
      {"adamw", "Adam whose decay does not pass through the moments", 1e-3, 1e-2, make_adam<true>},
  };
  return table;
}

const OptimizerChoice& optimizer_named(const std::string& name) {
  std::vector<std::string> names;
  for (const OptimizerChoice& choice : optimizers()) {
    if (choice.name == name) return choice;
    names.push_back(choice.name);
  }
  throw unknown_name("--optimizer", name, names);
}

}  // namespace lockstep::apps
