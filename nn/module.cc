#include "nn/module.h"

#include <fmt/format.h>

#include "kernels/check.h"
#include "kernels/elementwise.h"

namespace lockstep::nn {

namespace {

Tensor constant(const Shape& shape, const Device& device, float value) {
  const DeviceGuard guard(device);
  const Tensor tensor = Tensor::empty(shape, device);
  kernels::fill(tensor.data<float>(), value, tensor.size(), device.stream());
  return tensor;
}

}  // namespace

Tensor& Module::add_parameter(const std::string& name, const Shape& shape, const Device& device,
                              Start start) {
  Tensor value = constant(shape, device, start.constant);
  value.set_requires_grad(true);
  parameters_.push_back({name, std::move(value), start});
  return parameters_.back().value;
}

Tensor Module::add_buffer(const std::string& name, const Shape& shape, const Device& device, float start) {
  buffers_.push_back({name, constant(shape, device, start), start});
  return buffers_.back().value;
}

int64_t& Module::add_counter(const std::string& name) {
  counters_.push_back({name, std::make_shared<int64_t>(0)});
  return *counters_.back().value;
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> child) {
  for (const auto& [taken, module] : children_)
    if (taken == name) throw Error(fmt::format("two layers are named '{}': give one another name", name));
  child->train(training_);
  children_.emplace_back(name, std::move(child));
}

void Module::visit(const std::string& prefix,
                   const std::function<void(const std::string&, const Module&)>& visitor) const {
  visitor(prefix, *this);
  for (const auto& [name, child] : children_) child->visit(prefix + name + ".", visitor);
}

std::vector<Parameter> Module::named_parameters() const {
  std::vector<Parameter> all;
  visit("", [&all](const std::string& prefix, const Module& module) {
    for (const Parameter& own : module.parameters_) all.push_back({prefix + own.name, own.value, own.start});
  });
  return all;
}

std::vector<Buffer> Module::named_buffers() const {
  std::vector<Buffer> all;
  visit("", [&all](const std::string& prefix, const Module& module) {
    for (const Buffer& own : module.buffers_) all.push_back({prefix + own.name, own.value, own.start});
  });
  return all;
}

std::vector<Counter> Module::named_counters() const {
  std::vector<Counter> all;
  visit("", [&all](const std::string& prefix, const Module& module) {
    for (const Counter& own : module.counters_) all.push_back({prefix + own.name, own.value});
  });
  return all;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) child->train(on);
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
