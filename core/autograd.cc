#include "core/autograd.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <ranges>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/tensor_state.h"
#include "kernels/check.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

thread_local bool no_grad = false;

}  // namespace

// Where the gradient of one input goes: to the operation that produced it, or to the leaf itself. It holds no
// values: only the backward function keeps what it needs.
struct Edge {
  std::shared_ptr<Node> producer;
  std::shared_ptr<TensorState> leaf;
  Shape shape;
  DType dtype = DType::float32;
};

// What a tensor that backward reads was when forward used it. The values are the backward function's to keep.
struct SavedVersion {
  const char* name;
  Shape shape;
  std::weak_ptr<Storage> storage;
  uint64_t version;
};

struct Node {
  const char* operation;
  Shape output_shape;
  std::vector<Edge> inputs;
  BackwardFunction backward;  // empty once the walk has passed
  std::vector<SavedVersion> saved;

  // A long chain is taken apart in a loop: destroying it link by link would recurse as deep as the chain.
  ~Node() {
    std::vector<std::shared_ptr<Node>> chain;
    const auto take = [&chain](std::vector<Edge>& edges) {
      for (Edge& edge : edges)
        if (edge.producer) chain.push_back(std::move(edge.producer));
    };
    take(inputs);
    while (!chain.empty()) {
      const std::shared_ptr<Node> last = std::move(chain.back());
      chain.pop_back();
      if (last.use_count() == 1) take(last->inputs);
    }
  }
};

NoGrad::NoGrad() : before_(std::exchange(no_grad, true)) {}
NoGrad::~NoGrad() {
  no_grad = before_;
}
bool NoGrad::in_force() {
  return no_grad;
}

Tensor record(const char* operation, const Tensor& output, const std::vector<Tensor>& inputs,
              BackwardFunction backward, const std::vector<Saved>& saved) {
  bool wanted = false;
  for (const Tensor& input : inputs) wanted = wanted || (input.defined() && input.requires_grad());
  if (!wanted || no_grad) return output;

  auto node = std::make_shared<Node>();
  node->operation = operation;
  node->output_shape = output.shape();
  node->backward = std::move(backward);
  for (const auto& [name, value] : saved) {
    if (!value.defined()) continue;
    const std::shared_ptr<Storage>& storage = TensorState::of(value)->storage;
    node->saved.push_back({name, value.shape(), storage, storage->version});
  }
  for (const Tensor& input : inputs) {
    Edge edge;
    if (input.defined() && input.requires_grad()) {
      const auto& state = TensorState::of(input);
      edge.shape = state->shape;
      edge.dtype = state->dtype;
      edge.producer = state->producer;
      if (!edge.producer) edge.leaf = state;
    }
    node->inputs.push_back(std::move(edge));
  }
  TensorState state = *TensorState::of(output);
  state.requires_grad = true;
  state.producer = std::move(node);
  return TensorState::wrap(std::move(state));
}

namespace {

// True where nobody else can see the tensor's memory: no other handle, and no view.
bool held_alone(const Tensor& tensor) {
  const auto& state = TensorState::of(tensor);
  return state.use_count() == 1 && state->storage.use_count() == 1;
}

void add_into(const Tensor& sum, const Tensor& term) {
  const DeviceGuard guard(sum.device());
  for_float_type("backward", sum.dtype(), [&]<typename T>(T) {
    kernels::add_into(sum.data<T>(), term.data<T>(), sum.size(), sum.device().stream());
  });
  sum.mark_overwritten();
}

// sum += term, in sum's own memory where nobody else holds it, else in a copy.
void accumulate(Tensor& sum, const Tensor& term) {
  if (!sum.defined()) {
    sum = term;
    return;
  }
  if (!held_alone(sum)) sum = sum.copy_to(sum.device());
  add_into(sum, term);
}

// A leaf's gradient that somebody set (a range of an arena, say) is added to where it lies, unless the term
// was written there (gradient_memory).
void accumulate_leaf(TensorState& leaf, const Tensor& term) {
  leaf.gradient_written = true;
  const bool in_place = std::exchange(leaf.gradient_lent, false);
  if (leaf.gradient.defined()) {
    const auto& own = TensorState::of(leaf.gradient);
    if (in_place && own->address() == TensorState::of(term)->address())
      leaf.gradient.mark_overwritten();
    else
      add_into(leaf.gradient, term);
    ++own->storage->gradients_written;
  } else {
    // Two leaves must never share one gradient's memory.
    leaf.gradient = held_alone(term) ? term : term.copy_to(term.device());
  }
}

// Producers before what they feed: a depth-first walk that leaves a node when all its inputs are listed.
std::vector<Node*> topological_order(Node* last) {
  std::vector<Node*> order;
  std::unordered_set<Node*> seen{last};
  std::vector<std::pair<Node*, size_t>> path{{last, 0}};
  while (!path.empty()) {
    auto& [node, next] = path.back();
    if (next == node->inputs.size()) {
      order.push_back(node);
      path.pop_back();
      continue;
    }
    Node* producer = node->inputs[next++].producer.get();
    if (producer != nullptr && seen.insert(producer).second) path.emplace_back(producer, 0);
  }
  return order;
}

// Throws where the walk cannot pass a node.
void check_passable(const Node& node) {
  if (!node.backward)
    throw Error(fmt::format("backward: the graph at '{}' was already walked and freed: run forward again",
                            node.operation));
  for (const auto& [name, shape, memory, version] : node.saved) {
    const std::shared_ptr<Storage> storage = memory.lock();
    if (storage && storage->version != version)
      throw Error(fmt::format(
          "backward: the {} {} of '{}' was overwritten after forward had used it: go back before a "
          "step or a copy overwrites it, or run forward again",
          name, to_string(shape), node.operation));
  }
}

}  // namespace

namespace {

// A 1 for each device and type, made once. Nobody writes to it: what holds it adds in a copy.
Tensor unit_gradient(const Device& device, DType type) {
  static auto& units = *new std::map<std::pair<int, DType>, Tensor>;  // may be needed until the end
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Tensor& unit = units[{device.index(), type}];
  if (!unit.defined()) {
    const DeviceGuard guard(device);
    unit = Tensor::empty({1}, device, type);
    for_float_type("backward", type,
                   [&]<typename T>(T) { kernels::fill(unit.data<T>(), 1.0f, 1, device.stream()); });
  }
  return unit;
}

}  // namespace

bool is_unit_gradient(const Tensor& gradient) {
  return gradient.size() == 1 &&
         TensorState::of(gradient)->address() ==
             TensorState::of(unit_gradient(gradient.device(), gradient.dtype()))->address();
}

Tensor gradient_memory(const Tensor& input) {
  TensorState& leaf = *TensorState::of(input);
  const Tensor& gradient = leaf.gradient;
  const bool zero = !leaf.producer && leaf.requires_grad && gradient.defined() && leaf.gradient_is_zero &&
                    !leaf.gradient_written && !leaf.gradient_lent &&
                    TensorState::of(gradient)->storage->foreign_writes() == leaf.gradient_foreign_writes;
  if (!zero) return Tensor::empty(input.shape(), input.device(), input.dtype());
  leaf.gradient_lent = true;
  return gradient.detach();
}

void backward(const Tensor& loss) {
  if (loss.size() != 1)
    throw Error(fmt::format("backward: a loss has one element, this has shape {}", to_string(loss.shape())));
  const DeviceGuard guard(loss.device());  // for backward functions that launch on the current device
  backward(loss, unit_gradient(loss.device(), loss.dtype()).reshape(loss.shape()));
}

void backward(const Tensor& output, const Tensor& gradient) {
  if (!output.requires_grad()) throw Error("backward: nothing that was computed here requires a gradient");
  if (gradient.shape() != output.shape())
    throw Error(fmt::format("backward: a gradient of shape {} for an output of shape {}",
                            to_string(gradient.shape()), to_string(output.shape())));
  if (gradient.dtype() != output.dtype())
    throw Error(fmt::format("backward: a {} gradient for a {} output", name_of(gradient.dtype()),
                            name_of(output.dtype())));
  const auto& state = TensorState::of(output);
  if (!state->producer) {
    accumulate_leaf(*state, gradient.copy_to(gradient.device()));
    return;
  }
  const std::vector<Node*> order = topological_order(state->producer.get());
  for (const Node* node : std::views::reverse(order)) check_passable(*node);
  std::unordered_map<Node*, Tensor> gradients{{order.back(), gradient}};
  // Nodes are freed as the walk passes them, so each must be kept alive until its own turn.
  std::unordered_map<Node*, std::shared_ptr<Node>> alive;
  for (Node* const node : std::views::reverse(order)) {
    const std::shared_ptr<Node> self = node == order.back() ? state->producer : std::move(alive.at(node));
    check_passable(*self);  // once more: what ran since may have overwritten something
    const BackwardFunction function = std::exchange(self->backward, nullptr);
    std::vector<Edge> inputs = std::move(self->inputs);
    self->inputs.clear();
    for (Edge& edge : inputs)
      if (edge.producer) alive.emplace(edge.producer.get(), edge.producer);
    const auto arrived = gradients.find(self.get());
    if (arrived == gradients.end()) continue;
    const Tensor incoming = std::move(arrived->second);
    gradients.erase(arrived);

    std::vector<Tensor> outgoing = function(incoming);
    if (outgoing.size() != inputs.size())
      throw Error(fmt::format("backward: '{}' returned {} gradients for {} inputs", self->operation,
                              outgoing.size(), inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Edge& edge = inputs[i];
      if ((!edge.producer && !edge.leaf) || !outgoing[i].defined()) continue;
      if (outgoing[i].shape() != edge.shape)
        throw Error(fmt::format("backward: '{}' returned a gradient of shape {} for input {} of shape {}",
                                self->operation, to_string(outgoing[i].shape()), i, to_string(edge.shape)));
      if (outgoing[i].dtype() != edge.dtype)
        throw Error(fmt::format("backward: '{}' returned a {} gradient for input {}, which is {}",
                                self->operation, name_of(outgoing[i].dtype()), i, name_of(edge.dtype)));
      if (edge.leaf)
        accumulate_leaf(*edge.leaf, outgoing[i]);
      else
        accumulate(gradients[edge.producer.get()], outgoing[i]);
      outgoing[i] = Tensor();
    }
  }
}

}  // namespace lockstep
