#include "nn/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "nn/io/state_dict.h"

namespace lockstep::nn {

Optimizer::Optimizer(std::vector<Tensor> parameters, DecayOn decay_on)
    : parameters_(std::move(parameters)), decay_on_(decay_on) {
  check_distinct("the optimizer", parameters_);
}

bool Optimizer::Part::operator==(const Part& other) const {
  const auto same = [&](const auto&... member) { return ((whole.*member == other.whole.*member) && ...); };
  using Chunk = kernels::UpdateChunk;
  return size == other.size && same(&Chunk::weights, &Chunk::gradient, &Chunk::first_state,
                                    &Chunk::second_state, &Chunk::rounded, &Chunk::decays);
}

Optimizer::Part Optimizer::part_of(size_t index, const Tensor& gradient, const Tensor& rounded) const {
  const Tensor& weights = parameters_[index];
  const auto state = [&](size_t which) {
    return which < tensors_.size() ? tensors_[which].second[index].data<float>() : nullptr;
  };
  const bool decays = decay_on_ == DecayOn::all_parameters || weights.shape().size() > 1;
  return {{.weights = weights.data<float>(),
           .gradient = gradient.data<float>(),
           .first_state = state(0),
           .second_state = state(1),
           .rounded = rounded.defined() ? rounded.data<__nv_bfloat16>() : nullptr,
           .size = 0,
           .aligned = false,
           .decays = decays ? 1.0F : 0.0F},
          weights.size()};
}

kernels::UpdateList Optimizer::on_device(List& list, std::vector<Part> parts, const Device& device) {
  if (parts != list.parts || list.memory.device() != device) {
    list.parts = std::move(parts);
    list.chunks.clear();
    for (const Part& part : list.parts) kernels::append_chunks(part.whole, part.size, list.chunks);
    const auto bytes = static_cast<int64_t>(list.chunks.size() * sizeof(kernels::UpdateChunk));
    list.memory = Tensor::empty({bytes}, device, DType::uint8);
    if (bytes > 0)
      LOCKSTEP_CUDA(cudaMemcpyAsync(list.memory.data<uint8_t>(), list.chunks.data(),
                                    static_cast<size_t>(bytes), cudaMemcpyHostToDevice, device.stream()));
  }
  return {reinterpret_cast<const kernels::UpdateChunk*>(list.memory.data<uint8_t>()),
          static_cast<int64_t>(list.chunks.size())};
}

void Optimizer::step(float learning_rate, float gradient_scale, const ClipGradients& clip) {
  // Almost always one group: parameters on one device, which have made the same steps.
  struct Group {
    Device device;
    int64_t step;
    std::vector<Part> parts;
  };
  std::vector<Group> groups;
  std::vector<std::pair<Tensor, Tensor>> updated;  // and the rounded copy
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& weights = parameters_[i];
    const Tensor gradient = weights.grad();
    if (!gradient.defined()) continue;
    const Tensor rounded = weights.rounded_to_overwrite();
    const int64_t own_step = begin_step(i);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.device == weights.device() && g.step == own_step;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {weights.device(), own_step, {}});
    group->parts.push_back(part_of(i, gradient, rounded));
    updated.emplace_back(weights, rounded);
  }
  if (lists_.size() < groups.size()) lists_.resize(groups.size());
  const Update how{learning_rate, gradient_scale,
                   clip.norm.defined() ? kernels::GradientClip{clip.norm.data<float>(), clip.max_norm}
                                       : kernels::GradientClip{}};
  for (size_t g = 0; g < groups.size(); ++g) {
    const DeviceGuard guard(groups[g].device);
    const kernels::UpdateList list = on_device(lists_[g], std::move(groups[g].parts), groups[g].device);
    update(list, groups[g].step, how, groups[g].device.stream());
  }
  for (const auto& [weights, rounded] : updated) weights.mark_overwritten();
  for (const auto& [weights, rounded] : updated) {
    if (!rounded.defined()) continue;
    rounded.mark_overwritten();
    weights.keep_rounded(rounded);
  }
}

std::vector<Tensor>& Optimizer::add_tensors(const std::string& what) {
  const bool on_one_device = std::all_of(parameters_.begin(), parameters_.end(), [&](const Tensor& p) {
    return p.device() == parameters_.front().device();
  });
  std::vector<Tensor> zeros;
  if (on_one_device && !parameters_.empty())
    zeros = arena_like(parameters_).ranges;
  else
    for (const Tensor& p : parameters_) zeros.push_back(Tensor::zeros(p.shape(), p.device()));
  return tensors_.emplace_back(what, std::move(zeros)).second;
}

std::vector<int64_t>& Optimizer::add_counts(const std::string& what) {
  return counts_.emplace_back(what, std::vector<int64_t>(parameters_.size(), 0)).second;
}

std::vector<StateEntry> Optimizer::entries(const std::vector<std::string>& names) {
  if (names.size() != parameters_.size())
    throw Error(
        fmt::format("the optimizer's state: {} names for {} parameters", names.size(), parameters_.size()));
  std::vector<StateEntry> entries;
  for (size_t i = 0; i < names.size(); ++i) {
    for (auto& [what, tensors] : tensors_) entries.push_back({names[i] + "." + what, tensors[i]});
    for (auto& [what, counts] : counts_) entries.push_back({names[i] + "." + what, &counts[i]});
  }
  return entries;
}

std::vector<data::HostTensor> Optimizer::state(const std::vector<std::string>& names) {
  return save_entries(entries(names));
}

void Optimizer::load_state(const std::vector<std::string>& names,
                           const std::vector<data::HostTensor>& tensors, const std::string& file) {
  load_entries(entries(names), tensors, file, "the optimizer");
}

Arena arena_like(const std::vector<Tensor>& parameters, bool reversed) {
  constexpr int64_t kAlignment = 64;  // floats
  const auto room = [](const Tensor& p) { return (p.size() + kAlignment - 1) / kAlignment * kAlignment; };
  int64_t total = 0;
  for (const Tensor& parameter : parameters) total += room(parameter);
  Arena arena{Tensor::zeros({total}, parameters.front().device()), {}};
  int64_t begin = reversed ? total : 0;
  for (const Tensor& parameter : parameters) {
    if (reversed) begin -= room(parameter);
    arena.ranges.push_back(arena.all.slice(begin, begin + parameter.size()).reshape(parameter.shape()));
    if (!reversed) begin += room(parameter);
  }
  return arena;
}

Tensor gradient_arena(const std::vector<Tensor>& parameters) {
  if (parameters.empty()) throw Error("gradient_arena: no parameters");
  check_distinct("gradient_arena", parameters);
  const Arena arena = arena_like(parameters, /*reversed=*/true);
  for (size_t p = 0; p < parameters.size(); ++p) parameters[p].set_zero_grad(arena.ranges[p]);
  return arena.all;
}

}  // namespace lockstep::nn
