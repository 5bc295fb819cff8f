#include "nn/io/state_dict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "core/printable.h"
#include "kernels/check.h"

namespace lockstep::nn {
namespace {

using data::HostTensor;
using data::StoredType;

// What is wrong, in groups: "missing: fc1.weight, fc1.bias".
class Complaints {
 public:
  void add(const std::string& group, std::string item) { groups_[group].push_back(std::move(item)); }

  void throw_if_any(const std::string& file, const std::string& owner) const {
    if (groups_.empty()) return;
    std::vector<std::string> parts;
    for (const auto& [group, items] : groups_) {
      const auto shown = std::span(items).first(std::min(items.size(), kShown));
      parts.push_back(fmt::format("{}: {}", group, fmt::join(shown, ", ")));
      if (items.size() > kShown) parts.back() += fmt::format(" and {} more", items.size() - kShown);
    }
    throw Error(fmt::format("{} does not fit {}: {}", file, owner, fmt::join(parts, "; ")));
  }

 private:
  static constexpr size_t kShown = 5;
  std::map<std::string, std::vector<std::string>> groups_;
};

StoredType type_of(const StateEntry& entry) {
  return std::holds_alternative<Tensor>(entry.value) ? StoredType::f32 : StoredType::i64;
}

Shape shape_of(const StateEntry& entry) {
  const auto* tensor = std::get_if<Tensor>(&entry.value);
  return tensor != nullptr ? tensor->shape() : Shape{};
}

void load(const StateEntry& entry, const HostTensor& source) {
  if (const auto* number = std::get_if<int64_t*>(&entry.value)) {
    std::memcpy(*number, source.bytes.data(), sizeof(int64_t));
    return;
  }
  const Tensor& tensor = std::get<Tensor>(entry.value);
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  std::ranges::copy(source.bytes, std::as_writable_bytes(std::span(values)).begin());
  tensor.copy_from(Tensor::from_host(values, tensor.shape(), tensor.device()));
}

// What is one value under several names.
const void* identity(const StateEntry& entry) {
  const auto* tensor = std::get_if<Tensor>(&entry.value);
  return tensor != nullptr ? tensor->identity() : std::get<int64_t*>(entry.value);
}

std::vector<StateEntry> own_entries_of(const Module& replica) {
  std::vector<StateEntry> entries;
  for (const Buffer& buffer : replica.named_buffers()) entries.push_back({buffer.name, buffer.value});
  for (const Counter& counter : replica.named_counters())
    entries.push_back({counter.name, counter.value.get()});
  return entries;
}

}  // namespace

std::vector<StateEntry> state_entries(const Module& module) {
  std::vector<StateEntry> entries;
  for (const Parameter& parameter : module.named_parameters(Names::all))
    entries.push_back({parameter.name, parameter.value});
  for (const Buffer& buffer : module.named_buffers(Names::all))
    entries.push_back({buffer.name, buffer.value});
  return entries;
}

std::vector<HostTensor> save_entries(const std::vector<StateEntry>& entries) {
  std::vector<HostTensor> tensors;
  for (const StateEntry& entry : entries) {
    HostTensor& saved = tensors.emplace_back(
        HostTensor{.name = entry.name, .dtype = type_of(entry), .shape = shape_of(entry), .bytes = {}});
    const auto take = [&saved](std::span<const std::byte> bytes) {
      saved.bytes.assign(bytes.begin(), bytes.end());
    };
    if (const auto* number = std::get_if<int64_t*>(&entry.value))
      take(std::as_bytes(std::span(*number, 1)));
    else
      take(std::as_bytes(std::span<const float>(std::get<Tensor>(entry.value).to_host<float>())));
  }
  return tensors;
}

void load_entries(const std::vector<StateEntry>& entries, const std::vector<HostTensor>& tensors,
                  const std::string& file, const std::string& owner) {
  std::map<std::string, const HostTensor*> sources;
  for (const HostTensor& tensor : tensors) sources[tensor.name] = &tensor;
  Complaints complaints;
  std::set<std::string> wanted;
  std::map<const void*, const HostTensor*> given;  // by value: what the first of its names that is there has
  for (const StateEntry& entry : entries)
    if (const auto found = sources.find(entry.name); found != sources.end())
      given.emplace(identity(entry), found->second);
  for (const StateEntry& entry : entries) {
    wanted.insert(entry.name);
    if (!given.contains(identity(entry))) {
      complaints.add("missing", entry.name);
      continue;
    }
    const auto found = sources.find(entry.name);
    if (found == sources.end()) continue;  // another name of the same value has it
    const HostTensor& source = *found->second;
    if (source.dtype != type_of(entry))
      complaints.add("of another type", fmt::format("{} ({}, expected {})", entry.name, name_of(source.dtype),
                                                    name_of(type_of(entry))));
    else if (source.shape != shape_of(entry))
      complaints.add("of another shape", fmt::format("{} ({}, expected {})", entry.name,
                                                     to_string(source.shape), to_string(shape_of(entry))));
    else if (const HostTensor& first = *given.at(identity(entry)); source.bytes != first.bytes)
      complaints.add("tied here, but of different values", fmt::format("{} and {}", first.name, source.name));
  }
  for (const HostTensor& tensor : tensors)
    if (!wanted.contains(tensor.name)) complaints.add("unknown", printable(tensor.name));
  complaints.throw_if_any(file, owner);
  for (const StateEntry& entry : entries)
    if (const auto value = given.extract(identity(entry))) load(entry, *value.mapped());
}

std::vector<HostTensor> state_dict(const Module& module) {
  return save_entries(state_entries(module));
}

void load_state_dict(Module& module, const std::vector<HostTensor>& tensors, const std::string& file) {
  load_entries(state_entries(module), tensors, file, "the model");
}

std::vector<HostTensor> replica_state(const Module& replica) {
  return save_entries(own_entries_of(replica));
}

void load_replica_state(Module& replica, const std::vector<HostTensor>& tensors, const std::string& file) {
  load_entries(own_entries_of(replica), tensors, file, "the model");
}

std::vector<std::string> parameter_names(const Module& module) {
  std::vector<std::string> names;
  for (const Parameter& parameter : module.named_parameters()) names.push_back(parameter.name);
  return names;
}

}  // namespace lockstep::nn
