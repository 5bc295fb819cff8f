#include "parallel/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/autograd.h"
#include "kernels/check.h"
#include "nn/io/state_dict.h"
#include "parallel/shards.h"

namespace lockstep::parallel {
namespace {

using lockstep::to_string;  // of shapes

struct Named {
  std::string name;
  Tensor value;
};

template <typename T>
std::vector<Named> named(const std::vector<T>& values) {
  std::vector<Named> result;
  for (const T& value : values) result.push_back({value.name, value.value});
  return result;
}

// For each name, the first name of the same tensor.
template <typename T>
std::vector<std::pair<std::string, std::string>> ties(const std::vector<T>& values) {
  std::map<const void*, std::string> firsts;
  std::vector<std::pair<std::string, std::string>> result;
  for (const T& value : values)
    result.emplace_back(value.name, firsts.emplace(value.value.identity(), value.name).first->second);
  return result;
}

bool contains(const std::vector<Named>& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&name](const Named& entry) { return entry.name == name; });
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(fmt::format("DataParallel: {}: make all replicas alike", what));
}

// Throws where replica r, which has the same names as replica 0, has a tensor under other ones of them.
template <typename T>
void check_same_ties(const std::vector<T>& first, const std::vector<T>& other, size_t r) {
  const auto here = ties(first), there = ties(other);
  for (size_t i = 0; i < std::min(here.size(), there.size()); ++i)
    if (here[i] != there[i])
      refuse(fmt::format("'{}' is tied to '{}' in replica 0 but to '{}' in replica {}", here[i].first,
                         here[i].second, there[i].second, r));
}

// Throws where what replica r has differs from what replica 0 has in more than values. `kind` is "parameter"
// or "buffer".
void check_same(const char* kind, const std::vector<Named>& first, const std::vector<Named>& other, size_t r,
                const Device& device) {
  for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    if (i < first.size() && !contains(other, first[i].name))
      refuse(fmt::format("replica {} has no {} '{}', which replica 0 has", r, kind, first[i].name));
    if (i < other.size() && !contains(first, other[i].name))
      refuse(fmt::format("replica {} has a {} '{}', which replica 0 has not", r, kind, other[i].name));
    const auto& [name, value] = first[i];
    if (other[i].name != name)
      refuse(
          fmt::format("{} {} is '{}' in replica 0 but '{}' in replica {}", kind, i, name, other[i].name, r));
    if (other[i].value.shape() != value.shape())
      refuse(fmt::format("{} '{}' has shape {} in replica 0 but {} in replica {}", kind, name,
                         to_string(value.shape()), to_string(other[i].value.shape()), r));
    if (other[i].value.requires_grad() != value.requires_grad())
      refuse(fmt::format("{} '{}' requires a gradient in replica {} only", kind, name,
                         value.requires_grad() ? 0 : r));
    if (other[i].value.device() != device)
      refuse(fmt::format("{} '{}' of replica {} is on device {}, not on device {}", kind, name, r,
                         other[i].value.device().index(), device.index()));
  }
}

std::vector<std::shared_ptr<nn::Module>> make_replicas(const MakeModule& make,
                                                       const std::vector<Device>& devices) {
  if (devices.empty()) throw Error("DataParallel: no devices: use at least one");
  std::vector<std::shared_ptr<nn::Module>> replicas;
  for (const Device& device : devices) {
    replicas.push_back(make(device));
    const nn::Module& first = *replicas.front();
    const nn::Module& last = *replicas.back();
    const size_t r = replicas.size() - 1;
    check_same("parameter", named(first.named_parameters()), named(last.named_parameters()), r, device);
    check_same("buffer", named(first.named_buffers()), named(last.named_buffers()), r, device);
    using nn::Names;
    check_same_ties(first.named_parameters(Names::all), last.named_parameters(Names::all), r);
    check_same_ties(first.named_buffers(Names::all), last.named_buffers(Names::all), r);
    replicas.back()->set_replica(static_cast<int>(r));
  }
  return replicas;
}

std::vector<std::vector<Tensor>> parameters_of(const std::vector<std::shared_ptr<nn::Module>>& replicas) {
  std::vector<std::vector<Tensor>> parameters;
  for (const auto& replica : replicas) parameters.push_back(replica->parameters());
  return parameters;
}

// True where `module` or one below it is in training.
bool trains(const nn::Module& module) {
  return module.training() || std::any_of(module.children().begin(), module.children().end(),
                                          [](const auto& child) { return trains(*child.second); });
}

// The buffers of all replicas, by replica.
std::vector<std::vector<nn::Buffer>> buffers_of(const std::vector<std::shared_ptr<nn::Module>>& replicas) {
  std::vector<std::vector<nn::Buffer>> buffers;
  for (const auto& replica : replicas) buffers.push_back(replica->named_buffers());
  return buffers;
}

}  // namespace

DataParallel::DataParallel(const MakeModule& make, const std::vector<Device>& devices,
                           const DataParallelOptions& options)
    : replicas_(make_replicas(make, devices)),
      devices_(devices),
      threads_(devices),
      gradients_(parameters_of(replicas_), devices, options.algorithm, options.reduce_in,
                 options.check_allreduce),
      rows_(devices.size(), 0) {
  broadcast();
  if (options.statistics == BatchStatistics::shard || replicas_.size() == 1) return;
  // Its sums are a few hundred bytes: one kernel, whatever the gradients take.
  group_ = std::make_shared<collective::ThreadGroup>(devices, collective::one_shot);
  for (size_t r = 0; r < replicas_.size(); ++r)
    replicas_[r]->set_group(collective::ThreadGroup::of_rank(group_, r));
}

void DataParallel::broadcast() {
  const std::vector<Tensor> parameters = module().parameters();
  const std::vector<nn::Buffer> buffers = module().named_buffers();
  for (size_t r = 1; r < replicas_.size(); ++r) {
    const std::vector<Tensor> copies = replicas_[r]->parameters();
    for (size_t p = 0; p < parameters.size(); ++p) copies[p].copy_from(parameters[p]);
    const std::vector<nn::Buffer> others = replicas_[r]->named_buffers();
    for (size_t b = 0; b < buffers.size(); ++b) others[b].value.copy_from(buffers[b].value);
  }
}

Tensor DataParallel::operator()(const Tensor& x) {
  if (x.shape().empty() || x.dim(0) == 0)
    throw Error(fmt::format("DataParallel: a batch of shape {} has no rows", to_string(x.shape())));
  const std::vector<collective::Slice> rows = rows_of_shards(x.dim(0), replicas_.size());
  std::vector<Tensor> shards;
  for (size_t r = 0; r < replicas_.size(); ++r) {
    shards.push_back(shard_of(x.detach(), rows[r], devices_[r]));
    shards.back().set_requires_grad(x.requires_grad());  // a leaf of the replica's own graph
  }
  const std::vector<Tensor> outputs = forward(shards);
  const Tensor y = gather(outputs, rows, devices_[0]);

  // The replicas' graphs are apart from this one, which sees one operation. Its second input stands for the
  // parameters: with it there is a way back also where x needs no gradient.
  Tensor parameters = Tensor::empty({0}, devices_[0]);
  parameters.set_requires_grad(std::any_of(outputs.begin(), outputs.end(), [](const Tensor& output) {
    return output.defined() && output.requires_grad();
  }));
  return record("DataParallel", y, {x, parameters},
                [this, outputs, shards, rows, x_shape = x.shape(), x_device = x.device(), x_type = x.dtype(),
                 want_dx = x.requires_grad()](const Tensor& dy) {
                  std::vector<Tensor> gradients;
                  for (size_t r = 0; r < outputs.size(); ++r)
                    gradients.push_back(outputs[r].defined() ? shard_of(dy, rows[r], devices_[r]) : Tensor());
                  backward(outputs, gradients);
                  if (no_sync_ == 0) reduce_gradients();
                  Tensor dx;
                  if (want_dx) {
                    dx = Tensor::zeros(x_shape, x_device, x_type);
                    for (size_t r = 0; r < shards.size(); ++r)
                      if (shards[r].grad().defined())
                        dx.slice(rows[r].begin, rows[r].end).copy_from(shards[r].grad());
                  }
                  return std::vector<Tensor>{dx, Tensor()};
                });
}

std::vector<Tensor> DataParallel::forward(const std::vector<Tensor>& shards) {
  if (shards.size() != replicas_.size())
    throw Error(fmt::format("DataParallel: {} shards for {} replicas", shards.size(), replicas_.size()));
  for (size_t r = 0; r < shards.size(); ++r)
    if (shards[r].device() != devices_[r])
      throw Error(fmt::format("DataParallel: shard {} is on device {}, its replica on device {}", r,
                              shards[r].device().index(), devices_[r].index()));
  std::vector<bool> runs;
  for (const Tensor& shard : shards) runs.push_back(shard.dim(0) > 0);
  const auto first = static_cast<size_t>(std::find(runs.begin(), runs.end(), true) - runs.begin());
  if (first == runs.size()) throw Error("DataParallel: the batch has no rows");
  std::vector<Tensor> outputs(replicas_.size());
  run(runs, [&](size_t r) { outputs[r] = replicas_[r]->forward(shards[r]); });
  if (!trains(module())) return outputs;
  for (size_t r = 0; r < shards.size(); ++r) {
    rows_[r] += shards[r].dim(0);
    // With the statistics of the batch all replicas have the same running ones, also those without rows.
    if (!group_ || runs[r]) continue;
    const std::vector<nn::Buffer> buffers = replicas_[r]->named_buffers();
    const std::vector<nn::Buffer> others = replicas_[first]->named_buffers();
    for (size_t b = 0; b < buffers.size(); ++b) buffers[b].value.copy_from(others[b].value);
  }
  return outputs;
}

// A host thread per physical device, or per replica where they wait for each other in the middle.
void DataParallel::run(const std::vector<bool>& runs, const std::function<void(size_t)>& work) {
  if (group_) return group_->run(runs, work);
  threads_.run(runs, work);
}

void DataParallel::backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients) {
  if (outputs.size() != replicas_.size() || (!gradients.empty() && gradients.size() != outputs.size()))
    throw Error(fmt::format("DataParallel: {} outputs and {} gradients for {} replicas", outputs.size(),
                            gradients.size(), replicas_.size()));
  std::vector<bool> runs;
  for (const Tensor& output : outputs) runs.push_back(output.defined() && output.requires_grad());
  gradients_.prepare();
  run(runs, [&](size_t r) {
    if (gradients.empty())
      lockstep::backward(outputs[r]);
    else
      lockstep::backward(outputs[r], gradients[r]);
  });
}

void DataParallel::train(bool on) {
  for (const auto& replica : replicas_) replica->train(on);
}

std::vector<Tensor> DataParallel::combined_buffers() const {
  return nn::combine_buffers(replicas_, rows_);
}

void DataParallel::combine_buffers() {
  if (std::all_of(rows_.begin(), rows_.end(), [](int64_t rows) { return rows == 0; })) return;
  const std::vector<Tensor> combined = combined_buffers();
  for (const std::vector<nn::Buffer>& buffers : buffers_of(replicas_))
    for (size_t b = 0; b < buffers.size(); ++b) buffers[b].value.copy_from(combined[b]);
  std::fill(rows_.begin(), rows_.end(), 0);
}

std::vector<data::HostTensor> DataParallel::state_dict() const {
  const std::vector<nn::Buffer> buffers = module().named_buffers();
  const std::vector<Tensor> values = combined_buffers();
  std::map<const void*, Tensor> combined;
  for (size_t b = 0; b < buffers.size(); ++b) combined.emplace(buffers[b].value.identity(), values[b]);
  std::vector<nn::StateEntry> entries = nn::state_entries(module());
  for (nn::StateEntry& entry : entries)
    if (const auto found = combined.find(std::get<Tensor>(entry.value).identity()); found != combined.end())
      entry.value = found->second;
  return nn::save_entries(entries);
}

void DataParallel::set_rows_since_combined(const std::vector<int64_t>& rows) {
  if (rows.size() != replicas_.size())
    throw Error(
        fmt::format("DataParallel: {} counts of rows for {} replicas", rows.size(), replicas_.size()));
  rows_ = rows;
}

}  // namespace lockstep::parallel
