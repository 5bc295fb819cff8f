// Reverse-mode automatic differentiation, define by run: every operation leaves a node that knows its inputs
// and how to turn the gradient of its output into theirs; backward() walks the nodes from the loss.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace lockstep {

// Gradients of the inputs, in their order, from the gradient of the output (same shape as the output). May be
// undefined for an input that needs none.
using BackwardFunction = std::function<std::vector<Tensor>(const Tensor& gradient)>;

// Puts an operation into the graph: returns `output` with a history, or just as it is where no input requires
// a gradient or NoGrad is in force. `backward` must capture only what it needs; to keep the output, capture
// the handle that is passed in (it has no history, so there is no cycle). `operation` is a string literal.
Tensor record(const char* operation, const Tensor& output, const std::vector<Tensor>& inputs,
              BackwardFunction backward);

// Adds d(loss)/d(leaf) to the gradient of every leaf that requires one. `loss` has one element. The graph is
// freed on the way: a second walk through it is an error. Work is enqueued on the tensors' own streams.
void backward(const Tensor& loss);
// The same for a tensor of any shape whose gradient is known.
void backward(const Tensor& output, const Tensor& gradient);

// While one lives, operations of this thread leave no history.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  static bool in_force();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

}  // namespace lockstep
