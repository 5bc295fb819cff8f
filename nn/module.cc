#include "nn/module.h"

#include <fmt/format.h>

#include "kernels/check.h"

namespace lockstep::nn {

Tensor& Module::add_parameter(const std::string& name, const Shape& shape, const Device& device, Fans fans) {
  Tensor value = Tensor::zeros(shape, device);
  value.set_requires_grad(true);
  parameters_.push_back({name, std::move(value), fans});
  return parameters_.back().value;
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> child) {
  for (const auto& [taken, module] : children_)
    if (taken == name) throw Error(fmt::format("two layers are named '{}': give one another name", name));
  children_.emplace_back(name, std::move(child));
}

void Module::collect(const std::string& prefix, std::vector<Parameter>& into) const {
  for (const Parameter& parameter : parameters_)
    into.push_back({prefix + parameter.name, parameter.value, parameter.fans});
  for (const auto& [name, child] : children_) child->collect(prefix + name + ".", into);
}

std::vector<Parameter> Module::named_parameters() const {
  std::vector<Parameter> all;
  collect("", all);
  return all;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> values;
  for (Parameter& parameter : named_parameters()) values.push_back(std::move(parameter.value));
  return values;
}

void Module::set_parameters(const std::vector<Tensor>& values) {
  const std::vector<Parameter> names = named_parameters();
  if (names.size() != values.size())
    throw Error(fmt::format("set_parameters: {} tensors for {} parameters", values.size(), names.size()));
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].value.shape() != values[i].shape())
      throw Error(fmt::format("set_parameters: {} has shape {}, the tensor for it {}", names[i].name,
                              to_string(names[i].value.shape()), to_string(values[i].shape())));
  replace(values, 0);
}

size_t Module::replace(const std::vector<Tensor>& values, size_t next) {
  for (Parameter& parameter : parameters_) parameter.value = values[next++];
  for (const auto& [name, child] : children_) next = child->replace(values, next);
  return next;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& parameter : named_parameters()) count += parameter.value.size();
  return count;
}

Sequential::Sequential(std::vector<std::pair<std::string, std::shared_ptr<Module>>> layers) {
  for (auto& [name, layer] : layers) add_child(name, std::move(layer));
}

Sequential& Sequential::add(std::shared_ptr<Module> layer) {
  return add(std::to_string(children().size()), std::move(layer));
}

Sequential& Sequential::add(const std::string& name, std::shared_ptr<Module> layer) {
  add_child(name, std::move(layer));
  return *this;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& [name, layer] : children()) y = layer->forward(y);
  return y;
}

std::string Sequential::describe() const {
  return fmt::format("Sequential({} layers)", children().size());
}

}  // namespace lockstep::nn
