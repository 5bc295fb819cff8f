// A Module owns parameters and other modules and computes forward(). Its parameters have stable dotted names
// ("conv1.weight"), the same on every device and for every number of replicas.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace lockstep::nn {

// What initialisation needs to know of a parameter beside its shape. A bias has no fans.
struct Fans {
  int64_t in = 0;   // inputs that one output sums over
  int64_t out = 0;  // outputs that one input feeds
};

struct Parameter {
  std::string name;
  Tensor value;
  Fans fans;
};

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
  std::vector<Parameter> named_parameters() const;
  std::vector<Tensor> parameters() const;
  // Puts other tensors in the parameters' place (the same shapes, in the order of parameters(); usually a
  // replica's copies, made by get_params). Throws, naming the parameter, where a shape differs.
  void set_parameters(const std::vector<Tensor>& values);
  int64_t parameter_count() const;

  // Child modules with their names, in order.
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& children() const { return children_; }

 protected:
  // The returned reference stays valid, and follows set_parameters.
  Tensor& add_parameter(const std::string& name, const Shape& shape, const Device& device, Fans fans = {});
  void add_child(const std::string& name, std::shared_ptr<Module> child);

 private:
  void collect(const std::string& prefix, std::vector<Parameter>& into) const;
  size_t replace(const std::vector<Tensor>& values, size_t next);

  std::deque<Parameter> parameters_;  // a deque: references to its elements stay valid
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
};

// Runs its children one after the other.
class Sequential : public Module {
 public:
  Sequential() = default;
  explicit Sequential(std::vector<std::pair<std::string, std::shared_ptr<Module>>> layers);
  // A layer named by its position.
  Sequential& add(std::shared_ptr<Module> layer);
  Sequential& add(const std::string& name, std::shared_ptr<Module> layer);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;
};

}  // namespace lockstep::nn
