#include "nn/finite.h"

#include <fmt/format.h>

#include "kernels/finite.h"

namespace lockstep::nn {

std::optional<std::string> first_not_finite(const std::vector<StateEntry>& entries) {
  std::vector<std::pair<Device, Tensor>> counts;  // per device: a count for each entry
  const auto counts_on = [&](const Device& device) {
    for (const auto& [known, tensor] : counts)
      if (known == device) return tensor;
    return counts
        .emplace_back(device, Tensor::zeros({static_cast<int64_t>(entries.size())}, device, DType::int32))
        .second;
  };
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto* tensor = std::get_if<Tensor>(&entries[i].value);
    if (tensor == nullptr) continue;
    const Device device = tensor->device();
    const DeviceGuard guard(device);
    kernels::count_not_finite(tensor->data<float>(), tensor->size(), counts_on(device).data<int32_t>() + i,
                              device.stream());
  }
  std::vector<int64_t> totals(entries.size(), 0);
  for (const auto& [device, tensor] : counts) {
    const std::vector<int32_t> found = tensor.to_host<int32_t>();
    for (size_t i = 0; i < totals.size(); ++i) totals[i] += found[i];
  }
  for (size_t i = 0; i < entries.size(); ++i)
    if (totals[i] > 0)
      return fmt::format("{} of the {} values of {} are NaN or infinite", totals[i],
                         std::get<Tensor>(entries[i].value).size(), entries[i].name);
  return std::nullopt;
}

std::optional<std::string> first_not_finite(const Module& module) {
  return first_not_finite(state_entries(module));
}

}  // namespace lockstep::nn
