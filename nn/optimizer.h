// What all optimizers share: a list of parameters, and a step that updates those that have a gradient, in one
// launch. Each optimizer adds the update itself (nn/sgd.h, nn/adam.h).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/update.h"
#include "nn/io/safetensors.h"

namespace lockstep::nn {

struct StateEntry;  // nn/io/state_dict.h

// What weight decay pulls towards 0. `weights` leaves parameters of rank 1 alone: biases, and the scale and
// shift of batch norm.
enum class DecayOn { all_parameters, weights };

// Gradients are shortened so that their norm is at most max_norm: `norm` is what gradient_norm found
// (nn/clip.h). Undefined: they stay as they are.
struct ClipGradients {
  Tensor norm;
  float max_norm = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient: the sum in grad() times `gradient_scale`, 1 / rows of the
  // whole batch where the loss was a sum. With `clip` they are shortened on the way; grad() stays as it is.
  void step(float learning_rate, float gradient_scale = 1.0f, const ClipGradients& clip = {});

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
    kernels::GradientClip clip;
  };
  // Updates the parameters of a list, whose states are what add_tensors made, in that order; all of them
  // begin the same step. Enqueues on `stream`.
  virtual void update(const kernels::UpdateList& list, int64_t step, const Update& how,
                      cudaStream_t stream) = 0;
  // Called for each parameter that has a gradient: which step of its own this is. Those of different steps
  // are updated apart.
  virtual int64_t begin_step(size_t /*index*/) { return 0; }
  // Memory between steps: a tensor of zeros for each parameter, of its shape and on its device, at most
  // twice; a number for each, at first 0. References stay valid.
  std::vector<Tensor>& add_tensors(const std::string& what);
  std::vector<int64_t>& add_counts(const std::string& what);

 private:
  // A parameter in a list.
  struct Part {
    kernels::UpdateChunk whole;
    int64_t size;
    bool operator==(const Part& other) const;
  };
  // A list as it lies on a device; kept while the parts are the same, as they are from step to step.
  struct List {
    std::vector<Part> parts;
    std::vector<kernels::UpdateChunk> chunks;
    Tensor memory;
  };
  Part part_of(size_t index, const Tensor& gradient, const Tensor& rounded) const;
  static kernels::UpdateList on_device(List& list, std::vector<Part> parts, const Device& device);

  std::vector<Tensor> parameters_;
  DecayOn decay_on_;
  std::deque<std::pair<std::string, std::vector<Tensor>>> tensors_;
  std::deque<std::pair<std::string, std::vector<int64_t>>> counts_;
  std::vector<List> lists_;
};

// Makes the optimizer of one replica's parameters.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;

// Tensors of zeros of the shapes of `parameters`, in one block of memory, each at an address that is a
// multiple of 256: libraries and 16-byte accesses want such. What lies between stays zero. In the order of
// the list, or in reverse.
struct Arena {
  Tensor all;
  std::vector<Tensor> ranges;  // by parameter
};
Arena arena_like(const std::vector<Tensor>& parameters, bool reversed = false);

// An arena for the gradients of all parameters, the last layer's first (backward fills it from the front),
// which are set as their grad(): reducing it reduces all of them. Starts as zeros; backward writes to it.
// Throws where a parameter is listed twice.
Tensor gradient_arena(const std::vector<Tensor>& parameters);

}  // namespace lockstep::nn
