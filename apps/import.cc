// Reads a model that has PyTorch's names and layout, and writes it as one of Lockstep's.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "apps/common/command_line.h"
#include "apps/common/output.h"
#include "apps/common/pytorch_names.h"
#include "apps/common/saved_model.h"
#include "core/printable.h"
#include "nn/finite.h"
#include "nn/io/checkpoint.h"
#include "nn/io/state_dict.h"
#include "nn/io/to_float32.h"

using namespace lockstep;

namespace {

// For --help: what each model has of an option, "of lenet: article (default), chapter, classic".
std::string choices(const std::string& option) {
  std::vector<std::string> parts;
  for (const apps::NamedModel& model : apps::named_models())
    for (const apps::ModelOption& own : model.options)
      if (own.name == option)
        parts.push_back(fmt::format(
            "of {}: {} (default {})", model.name,
            own.values.empty() ? "a number" : fmt::format("{}", fmt::join(own.values, ", ")), own.value));
  return fmt::format("{}.", fmt::join(parts, "; "));
}

// The options of all models; what was typed lands in `typed`.
void add_model_options(CLI::App& app, apps::ModelDescription& typed) {
  std::vector<std::string> names;
  for (const apps::NamedModel& model : apps::named_models()) names.push_back(model.name);
  const auto add = [&](const std::string& name, const std::string& help) {
    app.add_option_function<std::string>(
           "--" + name, [&typed, name](const std::string& value) { typed[name] = value; }, help)
        ->group("Model");
  };
  add("model", fmt::format("{}. Else the file must name it, as one that `export` wrote does.",
                           fmt::join(names, " or ")));
  std::map<std::string, bool> added;
  for (const apps::NamedModel& model : apps::named_models())
    for (const apps::ModelOption& option : model.options)
      if (!std::exchange(added[option.name], true)) add(option.name, choices(option.name));
}

// What was typed, and for the rest what the file's metadata say.
apps::Model chosen_model(const apps::ModelDescription& typed, const apps::ModelDescription& metadata,
                         const std::string& file) {
  apps::ModelDescription description = typed;
  if (!typed.contains("model") && !metadata.contains("model"))
    throw Error(fmt::format("{} does not say which model it holds: use --model", file));
  const auto named = metadata.find("model");
  if (named != metadata.end() && (!typed.contains("model") || typed.at("model") == named->second))
    description.insert(metadata.begin(), metadata.end());
  apps::Model model = apps::named_model(description);
  for (const auto& [name, value] : typed)
    if (!model.description.contains(name))
      throw Error(fmt::format("--{}: {} has no such option", name, model.description.at("model")));
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Reads a safetensors file with PyTorch's names and layout, of one of the models\n"
      "below, and writes it as weights that predict and export read. Names may begin\n"
      "with \"module.\", which DataParallel leaves; values of type F16, BF16 and F64 are\n"
      "converted to F32. docs/pytorch.md has the names.",
      "import");
  apps::use_help_format(app);
  std::string from, to;
  apps::ModelDescription typed;
  app.add_option("IN", from, "The file to read.")->required();
  app.add_option("OUT", to, "The file to write.")->required();
  add_model_options(app, typed);
  app.footer(
      "In Python, for a file to read here:\n"
      "  safetensors.torch.save_file(model.state_dict(), \"resnet18.safetensors\")");
  if (const int exit_code = apps::parse(app, argc, argv); exit_code >= 0) return exit_code;

  return apps::report_errors("import", [&] {
    apps::check_other_file(to, from);
    data::Safetensors file = data::read_safetensors(from);
    const auto format = file.metadata.find("format");
    if (format != file.metadata.end() && format->second == nn::kWeightsFormat)
      throw Error(fmt::format("{} is Lockstep's own already: it needs no import", from));
    const apps::Model model = chosen_model(typed, file.metadata, from);
    apps::check_numbers(model.description, file.tensors);
    const auto converted = data::convert_to_float32(file.tensors, from);
    const auto module = model.make(make_devices(1)[0]);
    nn::load_pytorch_state_dict(*module, apps::pytorch_names(model.description), file.tensors, from);
    if (const auto found = nn::first_not_finite(*module))
      throw Error(fmt::format("{}: {}: no output of such a model would be a number", from, *found));
    std::map<std::string, std::string> metadata = model.description;
    metadata["format"] = nn::kWeightsFormat;
    data::write_safetensors(to, nn::state_dict(*module), metadata);
    fmt::print("{}: {}, {} parameters, from {}\n", printable(to), apps::title(model.description),
               module->parameter_count(), printable(from));
    for (const auto& [type, count] : converted)
      fmt::print("converted {} tensor{} from {} to F32{}\n", count, count == 1 ? "" : "s",
                 data::name_of(type), type == data::StoredType::f64 ? ", rounded to nearest" : ", exactly");
    return 0;
  });
}
