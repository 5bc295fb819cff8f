#include "parallel/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/autograd.h"
#include "kernels/check.h"
#include "parallel/replicas.h"
#include "parallel/running_statistics.h"

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

bool contains(const std::vector<Named>& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&name](const Named& entry) { return entry.name == name; });
}

// Throws where what replica r has differs from what replica 0 has in more than values. `kind` is "parameter"
// or "buffer".
void check_same(const char* kind, const std::vector<Named>& first, const std::vector<Named>& other, size_t r,
                const Device& device) {
  const auto fail = [](const std::string& what) {
    throw Error(fmt::format("DataParallel: {}: make all replicas alike", what));
  };
  for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    if (i < first.size() && !contains(other, first[i].name))
      fail(fmt::format("replica {} has no {} '{}', which replica 0 has", r, kind, first[i].name));
    if (i < other.size() && !contains(first, other[i].name))
      fail(fmt::format("replica {} has a {} '{}', which replica 0 has not", r, kind, other[i].name));
    const auto& [name, value] = first[i];
    if (other[i].name != name)
      fail(fmt::format("{} {} is '{}' in replica 0 but '{}' in replica {}", kind, i, name, other[i].name, r));
    if (other[i].value.shape() != value.shape())
      fail(fmt::format("{} '{}' has shape {} in replica 0 but {} in replica {}", kind, name,
                       to_string(value.shape()), to_string(other[i].value.shape()), r));
    if (other[i].value.requires_grad() != value.requires_grad())
      fail(fmt::format("{} '{}' requires a gradient in replica {} only", kind, name,
                       value.requires_grad() ? 0 : r));
    if (other[i].value.device() != device)
      fail(fmt::format("{} '{}' of replica {} is on device {}, not on device {}", kind, name, r,
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
  }
  return replicas;
}

std::vector<std::vector<Tensor>> parameters_of(const std::vector<std::shared_ptr<nn::Module>>& replicas) {
  std::vector<std::vector<Tensor>> parameters;
  for (const auto& replica : replicas) parameters.push_back(replica->parameters());
  return parameters;
}

// Rows of a batch, [begin, end) to a replica.
std::vector<Slice> rows_of_shards(int64_t rows, size_t replicas) {
  std::vector<Slice> slices;
  int64_t begin = 0;
  for (const int64_t size : split_sizes(rows, static_cast<int>(replicas))) {
    slices.push_back({begin, begin + size});
    begin += size;
  }
  return slices;
}

// Rows of `whole`, on `device`: a view where they are there already.
Tensor shard_of(const Tensor& whole, const Slice& rows, const Device& device) {
  const Tensor shard = whole.slice(rows.begin, rows.end);
  return shard.device() == device ? shard : shard.copy_to(device);
}

// Rows of shards put together on `device`, in order; parts[r] is undefined where rows[r] is empty.
Tensor gather(const std::vector<Tensor>& parts, const std::vector<Slice>& rows, const Device& device) {
  Tensor first;  // an empty shard may come before it
  for (size_t r = 0; r < parts.size(); ++r) {
    if (!parts[r].defined()) continue;
    if (!first.defined()) first = parts[r];
    Shape wanted = first.shape();
    if (!wanted.empty()) wanted[0] = rows[r].size();
    if (wanted.empty() || parts[r].shape() != wanted || parts[r].dtype() != first.dtype())
      throw Error(
          fmt::format("DataParallel: replica {} made {} {} of a shard of {} rows: outputs must be "
                      "[rows, ...], and alike in all replicas",
                      r, name_of(parts[r].dtype()), to_string(parts[r].shape()), rows[r].size()));
  }
  Shape shape = first.shape();
  shape[0] = rows.back().end;
  const Tensor whole = Tensor::empty(shape, device, first.dtype());
  for (size_t r = 0; r < parts.size(); ++r)
    if (parts[r].defined()) whole.slice(rows[r].begin, rows[r].end).copy_from(parts[r]);
  return whole;
}

}  // namespace

DataParallel::DataParallel(const MakeModule& make, const std::vector<Device>& devices,
                           const DataParallelOptions& options)
    : replicas_(make_replicas(make, devices)),
      devices_(devices),
      statistics_(options.statistics),
      gradients_(parameters_of(replicas_), devices, options.algorithm),
      rows_(devices.size(), 0) {
  if (statistics_ == BatchStatistics::batch) throw Error("DataParallel: not there yet");
  broadcast();
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
  const std::vector<Slice> rows = rows_of_shards(x.dim(0), replicas_.size());
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
                [this, outputs, shards, rows, x_shape = x.shape(), x_device = x.device(),
                 want_dx = x.requires_grad()](const Tensor& dy) {
                  std::vector<Tensor> gradients;
                  for (size_t r = 0; r < outputs.size(); ++r)
                    gradients.push_back(outputs[r].defined() ? shard_of(dy, rows[r], devices_[r]) : Tensor());
                  backward(outputs, gradients);
                  Tensor dx;
                  if (want_dx) {
                    dx = Tensor::zeros(x_shape, x_device);
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
  if (std::all_of(shards.begin(), shards.end(), [](const Tensor& shard) { return shard.dim(0) == 0; }))
    throw Error("DataParallel: the batch has no rows");
  // The host only enqueues: the devices work at the same time.
  std::vector<Tensor> outputs(replicas_.size());
  for (size_t r = 0; r < replicas_.size(); ++r) {
    if (shards[r].dim(0) == 0) continue;
    const DeviceGuard guard(devices_[r]);
    outputs[r] = replicas_[r]->forward(shards[r]);
    if (module().training()) rows_[r] += shards[r].dim(0);
  }
  return outputs;
}

void DataParallel::backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients) {
  if (outputs.size() != replicas_.size() || (!gradients.empty() && gradients.size() != outputs.size()))
    throw Error(fmt::format("DataParallel: {} outputs and {} gradients for {} replicas", outputs.size(),
                            gradients.size(), replicas_.size()));
  gradients_.prepare();
  for (size_t r = 0; r < replicas_.size(); ++r) {
    if (!outputs[r].defined() || !outputs[r].requires_grad()) continue;
    if (gradients.empty())
      lockstep::backward(outputs[r]);
    else
      lockstep::backward(outputs[r], gradients[r]);
  }
  if (no_sync_ == 0) reduce();
}

void DataParallel::train(bool on) {
  for (const auto& replica : replicas_) replica->train(on);
}

std::vector<std::vector<float>> DataParallel::combined_buffers() const {
  return parallel::combined_buffers(replicas_, rows_);
}

void DataParallel::combine_buffers() {
  if (std::all_of(rows_.begin(), rows_.end(), [](int64_t rows) { return rows == 0; })) return;
  const std::vector<std::vector<float>> combined = combined_buffers();
  for (size_t r = 0; r < replicas_.size(); ++r) {
    const std::vector<nn::Buffer> buffers = replicas_[r]->named_buffers();
    for (size_t b = 0; b < buffers.size(); ++b) {
      const Tensor& value = buffers[b].value;
      value.copy_from(Tensor::from_host(combined[b], value.shape(), devices_[r]));
    }
  }
  std::fill(rows_.begin(), rows_.end(), 0);
}

void DataParallel::set_rows_since_combined(const std::vector<int64_t>& rows) {
  if (rows.size() != replicas_.size())
    throw Error(
        fmt::format("DataParallel: {} counts of rows for {} replicas", rows.size(), replicas_.size()));
  rows_ = rows;
}

ReplicaOptimizers::ReplicaOptimizers(DataParallel& net, const nn::MakeOptimizer& make) : net_(net) {
  for (const auto& replica : net.replicas()) optimizers_.push_back(make(replica->parameters()));
}

void ReplicaOptimizers::step(float learning_rate, float gradient_scale) {
  if (!net_.gradients().reduced())
    throw Error(
        "ReplicaOptimizers: the last backward ran under no_sync(), so the gradients are not summed: "
        "let the last one before a step run outside of it");
  for (const auto& optimizer : optimizers_) optimizer->step(learning_rate, gradient_scale);
}

}  // namespace lockstep::parallel
