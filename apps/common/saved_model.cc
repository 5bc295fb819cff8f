#include "apps/common/saved_model.h"

#include <fmt/format.h>

#include "apps/common/standard_output.h"
#include "kernels/check.h"
#include "nn/finite.h"
#include "nn/state_dict.h"
#include "parallel/checkpoint.h"

namespace lockstep::apps {

SavedModel load_model(const std::filesystem::path& file_or_folder, const Device& device) {
  const parallel::Weights weights = parallel::read_weights(file_or_folder);
  for (const std::string& line : weights.refused) print_notice(line);
  SavedModel saved{.file = weights.file, .description = {}, .module = nullptr};
  try {
    const Model model = named_model(weights.model);
    saved.description = model.description;
    saved.module = model.make(device);
  } catch (const Error& error) {  // about what the metadata say
    throw Error(fmt::format("{}: {}", weights.file.string(), error.what()));
  }
  nn::load_state_dict(*saved.module, weights.tensors, weights.file.string());
  if (const auto found = nn::first_not_finite(*saved.module))
    throw Error(
        fmt::format("{}: {}: its training went wrong before it was saved", weights.file.string(), *found));
  saved.module->eval();
  return saved;
}

}  // namespace lockstep::apps
