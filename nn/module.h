// A Module owns parameters, buffers and other modules and computes forward(). Parameters and buffers have
// stable dotted names ("conv1.weight"), the same on every device and for every number of replicas.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "parallel/collective/group.h"

namespace lockstep::nn {

// How a parameter starts: drawn at random by its fans (nn/init.h), or, without fans, as a constant.
struct InitRule {
  int64_t fan_in = 0;   // inputs that one output sums over
  int64_t fan_out = 0;  // outputs that one input feeds
  float constant = 0;
};

struct Parameter {
  std::string name;
  Tensor value;
  InitRule init;
};

// State that training changes but no gradient: running statistics.
struct Buffer {
  std::string name;
  Tensor value;
  float start;  // of all its elements
};

// A number on the host that training changes: how often a dropout has drawn.
struct Counter {
  std::string name;
  std::shared_ptr<int64_t> value;
};

// A layer, or a tensor, that a model has in several places (tied weights) has several names. It is listed
// once, under the first, or under all.
enum class Names { first, all };

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return forward(x); }
  // One line for people: "Conv2d(1 -> 6, 5x5)".
  virtual std::string describe() const = 0;

  // All parameters, in the order of the layers, under their dotted names.
  std::vector<Parameter> named_parameters(Names names = Names::first) const;
  // Each once.
  std::vector<Tensor> parameters() const;
  // Puts other tensors in the parameters' place (the same shapes, in the order of parameters(); usually a
  // replica's copies, made by get_params), in all places of each. Throws, naming the parameter, where a shape
  // differs.
  void set_parameters(const std::vector<Tensor>& values);
  int64_t parameter_count() const;
  // All buffers, likewise. Writing into a buffer's tensor changes the module's.
  std::vector<Buffer> named_buffers(Names names = Names::first) const;
  // All counters, likewise, each once.
  std::vector<Counter> named_counters() const;

  // Training (the start) or evaluation, for this module and all below it: batch norm and dropout differ.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  // Which replica of a model this module, with all below it, belongs to: replicas draw other random numbers.
  // DataParallel says so; a module alone is replica 0.
  void set_replica(int replica);
  int replica() const { return replica_; }
  // The replicas with which this module, and all below it, takes the statistics of a batch; null (the start):
  // it looks at its own rows alone.
  void set_group(const std::shared_ptr<collective::Group>& group);
  const std::shared_ptr<collective::Group>& group() const { return group_; }

  // Child modules with their names, in order.
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const { return children_; }

 protected:
  // How the buffers of this module itself become one over its replicas: replicas[r][b] is buffer b, in the
  // order of add_buffer, of replica r, which has seen rows[r] rows in training since they were one. Replica 0
  // is this. Returns new tensors on its device. Unless overridden: what replica 0 has.
  virtual std::vector<Tensor> combine_own_buffers(const std::vector<std::vector<Tensor>>& replicas,
                                                  const std::vector<int64_t>& rows) const;
  // Starts as its constant. The returned reference stays valid, and follows set_parameters.
  Tensor& add_parameter(const std::string& name, const Shape& shape, const Device& device,
                        InitRule init = {});
  Tensor add_buffer(const std::string& name, const Shape& shape, const Device& device, float start);
  // Starts as 0. The returned reference stays valid.
  int64_t& add_counter(const std::string& name);
  // Below a module that evaluates a child evaluates too; else it keeps its mode: what was frozen stays so.
  // One child may have several names, here and elsewhere in a model (tied weights). Throws where a name is
  // taken, or a module would contain itself.
  void add_child(const std::string& name, std::shared_ptr<Module> child);

 private:
  friend class EvaluationMode;
  friend std::vector<Tensor> combine_buffers(const std::vector<std::shared_ptr<Module>>& replicas,
                                             const std::vector<int64_t>& rows);
  // Calls visit(prefix, module) for this module and all below it, in order, in every place where they are.
  void visit(const std::string& prefix,
             const std::function<void(const std::string&, const Module&)>& visitor) const;
  // This module and all below it, each once, in the order of visit.
  std::vector<Module*> all_modules();
  // What all modules have in `list`, each once or under all names.
  template <typename List>
  std::vector<typename List::value_type> all_of(List Module::* list, Names names) const;

  std::deque<Parameter> parameters_;  // a deque: references to its elements stay valid
  std::vector<Buffer> buffers_;
  std::vector<Counter> counters_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
  bool training_ = true;
  int replica_ = 0;
  std::shared_ptr<collective::Group> group_;
};

// One value for each buffer of replicas that are alike, as each module says (Module::combine_own_buffers), on
// the device of replica 0, in the order of named_buffers(). rows[r]: what replica r has seen in training
// since they were one.
std::vector<Tensor> combine_buffers(const std::vector<std::shared_ptr<Module>>& replicas,
                                    const std::vector<int64_t>& rows);

// While one lives, `module` evaluates; afterwards it, and each module below it, is in the mode it had before.
class EvaluationMode {
 public:
  explicit EvaluationMode(Module& module);
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> before_;
};

// Runs its children one after the other.
class Sequential : public Module {
 public:
  Sequential() = default;
  explicit Sequential(std::vector<std::pair<std::string, std::shared_ptr<Module>>> layers);
  // A layer named by its position.
  Sequential& add(std::shared_ptr<Module> layer);
  Sequential& add(const std::string& name, std::shared_ptr<Module> layer);
  // A layer that is made here: add<Conv2d>("conv1", 1, 6, 5, device).
  template <typename Layer, typename... Arguments>
  Sequential& add(const std::string& name, Arguments&&... arguments) {
    return add(name, std::make_shared<Layer>(std::forward<Arguments>(arguments)...));
  }
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;
};

}  // namespace lockstep::nn
