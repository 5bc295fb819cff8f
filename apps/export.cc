// Writes a model under PyTorch's names and in its layout.
#include <fmt/format.h>

#include "apps/common/command_line.h"
#include "apps/common/output.h"
#include "apps/common/pytorch_names.h"
#include "apps/common/saved_model.h"
#include "core/printable.h"

using namespace lockstep;

int main(int argc, char** argv) {
  CLI::App app(
      "Writes a model's weights and running statistics as a safetensors file with\n"
      "PyTorch's names and layout: torchvision's for ResNet-18's variant torchvision,\n"
      "d2l's for its variant chapter, and the positions in an nn.Sequential for LeNet.\n"
      "docs/pytorch.md has the table.",
      "export");
  apps::use_help_format(app);
  std::string from, to;
  app.add_option("CHECKPOINT", from, "A weights file, or a folder: then the newest checkpoint in it.")
      ->required();
  app.add_option("OUT", to, "The file to write, such as resnet18.safetensors.")->required();
  app.footer(
      "In Python:\n"
      "  model.load_state_dict(safetensors.torch.load_file(\"resnet18.safetensors\"))");
  if (const int exit_code = apps::parse(app, argc, argv); exit_code >= 0) return exit_code;

  return apps::report_errors("export", [&] {
    const apps::SavedModel saved = apps::load_model(from, make_devices(1)[0]);
    apps::check_other_file(to, saved.file);
    std::map<std::string, std::string> metadata = saved.description;
    metadata["format"] = "pt";  // as in files that PyTorch's users write
    const auto tensors = nn::pytorch_state_dict(*saved.module, apps::pytorch_names(saved.description));
    data::write_safetensors(to, tensors, metadata);
    fmt::print("{}: {} from {}, {} tensors with PyTorch's names and layout\n", printable(to),
               apps::title(saved.description), printable(saved.file.native()), tensors.size());
    return 0;
  });
}
