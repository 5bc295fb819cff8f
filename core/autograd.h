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

// A tensor whose values backward reads, and what an error calls it: "weight". An undefined one counts for
// nothing.
struct Saved {
  const char* name;
  Tensor value;
};

// Puts an operation into the graph: returns `output` with a history, or just as it is where no input requires
// a gradient or NoGrad is in force. `backward` must capture only what it needs; to keep the output, capture
// the handle that is passed in (it has no history, so there is no cycle). `saved` lists what it captured of
// tensors that others can overwrite: the walk refuses to pass where one was. Names are string literals.
Tensor record(const char* operation, const Tensor& output, const std::vector<Tensor>& inputs,
              BackwardFunction backward, const std::vector<Saved>& saved = {});

// True for the 1 that backward(loss) starts from: what multiplies by it may be left out.
bool is_unit_gradient(const Tensor& gradient);

// Memory for the gradient of an input, for a backward function that writes all of it: the input's own
// gradient, where that holds zeros that nobody wrote to since set_zero_grad, so that nothing is left to add;
// else new memory. To be returned as the gradient of that input, in the same call.
Tensor gradient_memory(const Tensor& input);

// Adds d(loss)/d(leaf) to the gradient of every leaf that requires one. `loss` has one element. The graph is
// freed on the way: a second walk through it is an error. So is a walk where a tensor that backward reads was
// overwritten after forward had used it (by an optimizer's step, a copy, whoever calls mark_overwritten);
// then gradients and graph are as they were. Work is enqueued on the tensors' own streams.
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
