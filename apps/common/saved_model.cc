#include "apps/common/saved_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "apps/common/output.h"
#include "core/printable.h"
#include "kernels/check.h"
#include "nn/finite.h"
#include "nn/io/checkpoint.h"
#include "nn/io/state_dict.h"

namespace lockstep::apps {

void check_numbers(const ModelDescription& description, const std::vector<data::HostTensor>& tensors) {
  auto most = static_cast<int64_t>(tensors.size());
  for (const data::HostTensor& tensor : tensors)
    for (const int64_t size : tensor.shape) most = std::max(most, size);
  for (const auto& [name, value] : description) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc::result_out_of_range || (error == std::errc() && number > most))
      throw Error(fmt::format("{} is {}, but none of its {} tensors has more than {} in any dimension", name,
                              printable(value), tensors.size(), most));
  }
}

SavedModel load_model(const std::filesystem::path& file_or_folder, const Device& device) {
  const nn::Weights weights = nn::read_weights(file_or_folder);
  for (const std::string& line : weights.refused) print_notice(line);
  SavedModel saved{.file = weights.file, .description = {}, .module = nullptr};
  try {
    const Model model = named_model(weights.model);
    saved.description = model.description;
    check_numbers(model.description, weights.tensors);
    saved.module = model.make(device);
  } catch (const Error& error) {  // about what the metadata say
    throw Error(fmt::format("{}: {}", printable(weights.file.native()), printable(error.what())));
  }
  nn::load_state_dict(*saved.module, weights.tensors, printable(weights.file.native()));
  if (const auto found = nn::first_not_finite(*saved.module))
    throw Error(fmt::format("{}: {}: its training went wrong before it was saved",
                            printable(weights.file.native()), *found));
  saved.module->eval();
  return saved;
}

}  // namespace lockstep::apps
