// What all optimizers share: a list of parameters, and a step that visits those that have a gradient. Each
// optimizer adds the update of one parameter (nn/sgd.h, nn/adam.h).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "nn/io/safetensors.h"

namespace lockstep::nn {

struct StateEntry;  // nn/io/state_dict.h

// What weight decay pulls towards 0. `weights` leaves parameters of rank 1 alone: biases, and the scale and
// shift of batch norm.
enum class DecayOn { all_parameters, weights };

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient: the sum in grad() times `gradient_scale`, 1 / rows of the
  // whole batch where the loss was a sum.
  void step(float learning_rate, float gradient_scale = 1.0f);

  // What it remembers between steps, on the host, as "fc1.weight.velocity": names[i] is that of parameter i
  // (parameter_names in nn/io/state_dict.h). Loading it into an optimizer of the same kind over the same
  // shapes gives one that goes on bit for bit as this one; where it does not fit, load_state throws as
  // load_state_dict does. Waits for the device.
  std::vector<data::HostTensor> state(const std::vector<std::string>& names);
  void load_state(const std::vector<std::string>& names, const std::vector<data::HostTensor>& tensors,
                  const std::string& file);
  // The same where it lies.
  std::vector<StateEntry> entries(const std::vector<std::string>& names);

 protected:
  // Throws where a parameter is listed twice: tied weights are one (Module::parameters()).
  Optimizer(std::vector<Tensor> parameters, DecayOn decay_on);

  struct Update {
    float learning_rate;
    float gradient_scale;
    bool decays;
  };
  // Updates parameter `index`, which has a gradient, on its device's stream.
  virtual void update(size_t index, const Tensor& weights, const Tensor& gradient, const Update& how) = 0;
  // Memory between steps: a tensor of zeros for each parameter, of its shape and on its device; a number for
  // each, at first 0. References stay valid.
  std::vector<Tensor>& add_tensors(const std::string& what);
  std::vector<int64_t>& add_counts(const std::string& what);

 private:
  std::vector<Tensor> parameters_;
  DecayOn decay_on_;
  std::deque<std::pair<std::string, std::vector<Tensor>>> tensors_;
  std::deque<std::pair<std::string, std::vector<int64_t>>> counts_;
};

// Makes the optimizer of one replica's parameters.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;

// One tensor that holds the gradients of all parameters, the last layer's first (backward fills it from the
// front), and is set as their grad(): reducing it reduces all of them. Starts as zeros; backward adds to it.
// Throws where a parameter is listed twice.
Tensor gradient_arena(const std::vector<Tensor>& parameters);

}  // namespace lockstep::nn
