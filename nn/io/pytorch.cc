// Both layouts are one pattern: after the first dimension, elements lie as [positions, channels] here and as
// [channels, positions] there. So a list of (name, name, channels) is all that the conversion needs.
#include "nn/io/pytorch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "nn/io/state_dict.h"
#include "nn/layers.h"

namespace lockstep::nn {
namespace {

using data::HostTensor;
using data::StoredType;

constexpr const char* kBatchCount = "num_batches_tracked";

struct Correspondence {
  std::string theirs;
  Tensor value;          // the module's own; undefined for num_batches_tracked
  Shape shape;           // in PyTorch
  int64_t channels = 1;  // 1: the elements lie the same way
};

class Walk {
 public:
  explicit Walk(const PyTorchNames& names) : names_(names) {}

  std::vector<Correspondence> run(const Module& module) {
    visit("", module);
    const size_t tensors =
        module.named_parameters(Names::all).size() + module.named_buffers(Names::all).size();
    if (all_.size() != tensors + batch_norms_)
      throw Error("a layer with children has parameters of its own: their layout in PyTorch is not known");
    check_ties();
    return std::move(all_);
  }

 private:
  // In PyTorch, too, a tied tensor is one.
  void check_ties() const {
    std::map<const void*, const Correspondence*> firsts;
    for (const Correspondence& tensor : all_) {
      if (!tensor.value.defined()) continue;
      const Correspondence& first = *firsts.emplace(tensor.value.identity(), &tensor).first->second;
      if (first.channels != tensor.channels)
        throw Error(fmt::format(
            "{} and {} are one tensor, but PyTorch would lay them out differently: its linear layer "
            "behind a flattened image has other columns",
            first.theirs, tensor.theirs));
    }
  }

  void visit(const std::string& prefix, const Module& module) {
    if (dynamic_cast<const Conv2d*>(&module) != nullptr) {
      convolution(prefix, module);
    } else if (dynamic_cast<const Linear*>(&module) != nullptr) {
      linear(prefix, module);
    } else if (dynamic_cast<const BatchNorm2d*>(&module) != nullptr) {
      as_it_is(prefix, module);
      all_.push_back({.theirs = rename(prefix + kBatchCount), .value = {}, .shape = {}});
      ++batch_norms_;
    } else if (module.children().empty()) {
      if (!module.named_parameters().empty() || !module.named_buffers().empty())
        throw Error(fmt::format("{}{}: its layout in PyTorch is not known", prefix, module.describe()));
      flattened_ |= dynamic_cast<const Flatten*>(&module) != nullptr;
    }
    for (const auto& [name, child] : module.children()) visit(prefix + name + ".", *child);
  }

  void convolution(const std::string& prefix, const Module& module) {
    as_it_is(prefix, module, [this](Correspondence& weight) {
      const Shape ours = weight.value.shape();
      weight.shape = {ours[0], ours[3], ours[1], ours[2]};
      weight.channels = ours[3];
      channels_ = ours[0];
    });
  }

  void linear(const std::string& prefix, const Module& module) {
    as_it_is(prefix, module, [&](Correspondence& weight) {
      if (!flattened_) return;
      if (weight.shape[1] % channels_ != 0)
        throw Error(fmt::format("{}weight: {} columns for an image of {} channels", prefix, weight.shape[1],
                                channels_));
      weight.channels = channels_;
      flattened_ = false;
    });
  }

  // All tensors of one layer, under their names; `change_weight` sees the weight.
  template <typename Change>
  void as_it_is(const std::string& prefix, const Module& layer, const Change& change_weight) {
    for (const Parameter& own : layer.named_parameters()) {
      all_.push_back({.theirs = rename(prefix + own.name), .value = own.value, .shape = own.value.shape()});
      if (own.name == "weight") change_weight(all_.back());
    }
    for (const Buffer& own : layer.named_buffers())
      all_.push_back({.theirs = rename(prefix + own.name), .value = own.value, .shape = own.value.shape()});
  }
  void as_it_is(const std::string& prefix, const Module& layer) {
    as_it_is(prefix, layer, [](Correspondence&) {});
  }

  std::string rename(const std::string& name) const {
    std::string renamed;
    for (size_t begin = 0; begin <= name.size();) {
      const size_t end = std::min(name.find('.', begin), name.size());
      const std::string part = name.substr(begin, end - begin);
      const auto& table = begin == 0 ? names_.first : names_.inner;
      const auto found = table.find(part);
      renamed += (begin == 0 ? "" : ".") + (found == table.end() ? part : found->second);
      begin = end + 1;
    }
    return renamed;
  }

  const PyTorchNames& names_;
  std::vector<Correspondence> all_;
  size_t batch_norms_ = 0;
  int64_t channels_ = 1;    // of the activations at this place; images begin with one (nn/data/device_data.h)
  bool flattened_ = false;  // since then, no linear layer
};

// [outer, from_rows, from_columns] to [outer, from_columns, from_rows].
std::vector<float> transposed(const std::vector<float>& from, int64_t outer, int64_t rows, int64_t columns) {
  std::vector<float> to(from.size());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        to[static_cast<size_t>((o * columns + c) * rows + r)] =
            from[static_cast<size_t>((o * rows + r) * columns + c)];
  return to;
}

int64_t positions(const Correspondence& tensor) {
  return element_count(tensor.shape) / std::max<int64_t>(tensor.shape[0] * tensor.channels, 1);
}

std::vector<HostTensor> without_prefix_and_counts(const std::vector<HostTensor>& tensors) {
  const std::string prefix = "module.";
  const bool prefixed = std::all_of(tensors.begin(), tensors.end(), [&](const HostTensor& tensor) {
    return tensor.name.starts_with(prefix);
  });
  std::vector<HostTensor> plain;
  for (const HostTensor& tensor : tensors) {
    if (tensor.name.ends_with(kBatchCount)) continue;
    plain.push_back(tensor);
    if (prefixed) plain.back().name.erase(0, prefix.size());
  }
  return plain;
}

}  // namespace

std::vector<HostTensor> pytorch_state_dict(const Module& module, const PyTorchNames& names) {
  std::vector<HostTensor> state;
  for (const Correspondence& tensor : Walk(names).run(module)) {
    if (!tensor.value.defined()) {
      state.push_back({.name = tensor.theirs,
                       .dtype = StoredType::i64,
                       .shape = {},
                       .bytes = std::vector<std::byte>(sizeof(int64_t))});
      continue;
    }
    const std::vector<float> values =
        transposed(tensor.value.to_host<float>(), tensor.shape[0], positions(tensor), tensor.channels);
    HostTensor& saved = state.emplace_back(
        HostTensor{.name = tensor.theirs, .dtype = StoredType::f32, .shape = tensor.shape, .bytes = {}});
    saved.bytes.resize(values.size() * sizeof(float));
    std::memcpy(saved.bytes.data(), values.data(), saved.bytes.size());
  }
  return state;
}

void load_pytorch_state_dict(Module& module, const PyTorchNames& names,
                             const std::vector<HostTensor>& tensors, const std::string& file) {
  std::vector<Correspondence> all = Walk(names).run(module);
  std::erase_if(all, [](const Correspondence& tensor) { return !tensor.value.defined(); });
  std::vector<StateEntry> entries;  // of their shapes, so that names and shapes are compared as in the file
  std::map<const void*, Tensor> places;  // tied ones have one
  for (const Correspondence& tensor : all) {
    Tensor& place = places[tensor.value.identity()];
    if (!place.defined()) place = Tensor::empty(tensor.shape, tensor.value.device());
    entries.push_back({tensor.theirs, place});
  }
  load_entries(entries, without_prefix_and_counts(tensors), file, "the model");
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& ours = all[i].value;
    const std::vector<float> values = transposed(std::get<Tensor>(entries[i].value).to_host<float>(),
                                                 all[i].shape[0], all[i].channels, positions(all[i]));
    ours.copy_from(Tensor::from_host(values, ours.shape(), ours.device()));
  }
}

}  // namespace lockstep::nn
