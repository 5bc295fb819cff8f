#include "nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

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

const void* identity(const Parameter& parameter) {
  return parameter.value.identity();
}
const void* identity(const Buffer& buffer) {
  return buffer.value.identity();
}
const void* identity(const Counter& counter) {
  return counter.value.get();
}

}  // namespace

Tensor& Module::add_parameter(const std::string& name, const Shape& shape, const Device& device,
                              InitRule init) {
  Tensor value = constant(shape, device, init.constant);
  value.set_requires_grad(true);
  parameters_.push_back({name, std::move(value), init});
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
  if (!child) throw Error(fmt::format("the layer '{}' is null", name));
  const std::vector<Module*> below = child->all_modules();
  if (std::find(below.begin(), below.end(), this) != below.end())
    throw Error(fmt::format("a layer named '{}' would contain itself: add another one", name));
  if (!training_) child->eval();
  child->set_replica(replica_);
  child->set_group(group_);
  children_.emplace_back(name, std::move(child));
}

void Module::visit(const std::string& prefix,
                   const std::function<void(const std::string&, const Module&)>& visitor) const {
  visitor(prefix, *this);
  for (const auto& [name, child] : children_) child->visit(prefix + name + ".", visitor);
}

std::vector<Module*> Module::all_modules() {
  std::vector<Module*> all;
  std::unordered_set<Module*> seen;
  const std::function<void(Module&)> add = [&](Module& module) {
    if (!seen.insert(&module).second) return;
    all.push_back(&module);
    for (const auto& [name, child] : module.children_) add(*child);
  };
  add(*this);
  return all;
}

template <typename List>
std::vector<typename List::value_type> Module::all_of(List Module::* list, Names names) const {
  std::vector<typename List::value_type> all;
  std::unordered_set<const void*> seen;
  visit("", [&](const std::string& prefix, const Module& module) {
    for (const auto& own : module.*list) {
      if (!seen.insert(identity(own)).second && names == Names::first) continue;
      all.push_back(own);
      all.back().name = prefix + own.name;
    }
  });
  return all;
}

std::vector<Parameter> Module::named_parameters(Names names) const {
  return all_of(&Module::parameters_, names);
}

std::vector<Buffer> Module::named_buffers(Names names) const {
  return all_of(&Module::buffers_, names);
}

std::vector<Counter> Module::named_counters() const {
  return all_of(&Module::counters_, Names::first);
}

void Module::train(bool on) {
  for (Module* module : all_modules()) module->training_ = on;
}

void Module::set_replica(int replica) {
  for (Module* module : all_modules()) module->replica_ = replica;
}

void Module::set_group(const std::shared_ptr<collective::Group>& group) {
  for (Module* module : all_modules()) module->group_ = group;
}

std::vector<Tensor> Module::combine_own_buffers(const std::vector<std::vector<Tensor>>& replicas,
                                                const std::vector<int64_t>& /*rows*/) const {
  std::vector<Tensor> combined;
  for (const Tensor& own : replicas[0]) combined.push_back(own.copy_to(own.device()));
  return combined;
}

std::vector<Tensor> combine_buffers(const std::vector<std::shared_ptr<Module>>& replicas,
                                    const std::vector<int64_t>& rows) {
  std::vector<std::vector<Module*>> modules;  // by replica
  for (const auto& replica : replicas) modules.push_back(replica->all_modules());
  std::vector<Tensor> combined;
  for (size_t m = 0; m < modules[0].size(); ++m) {
    std::vector<std::vector<Tensor>> buffers;  // of this module, by replica
    for (const auto& replica : modules) {
      buffers.emplace_back();
      for (const Buffer& buffer : replica[m]->buffers_) buffers.back().push_back(buffer.value);
    }
    for (Tensor& value : modules[0][m]->combine_own_buffers(buffers, rows))
      combined.push_back(std::move(value));
  }
  return combined;
}

EvaluationMode::EvaluationMode(Module& module) {
  for (Module* each : module.all_modules()) before_.emplace_back(each, each->training_);
  module.eval();
}

EvaluationMode::~EvaluationMode() {
  for (const auto& [module, training] : before_) module->training_ = training;
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
  std::unordered_map<const void*, Tensor> replacement;
  for (size_t i = 0; i < names.size(); ++i) replacement.emplace(identity(names[i]), values[i]);
  for (Module* module : all_modules())
    for (Parameter& parameter : module->parameters_) parameter.value = replacement.at(identity(parameter));
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
