// Trains LeNet on Fashion-MNIST, on any number of devices.
#include <fmt/format.h>

#include "apps/common/program.h"

using namespace lockstep;

namespace {

// What the article ran; an option that was typed keeps its value.
void apply_recipe(const std::string& recipe, const CLI::App& app, apps::Options& options) {
  const bool article = apps::choose<bool>("--recipe", recipe, {{"default", false}, {"article", true}});
  if (!article) return;
  const auto typed = [&app](const char* name) { return app.get_option(name)->count() > 0; };
  if (!typed("--lr")) options.lr = 0.1;
  if (!typed("--momentum")) options.momentum = 0;
  if (!typed("--weight-decay")) options.weight_decay = 0;
  if (!typed("--schedule")) options.schedule = "constant";
  if (!typed("--clip-norm")) options.clip_norm = 0;
}

}  // namespace

int main(int argc, char** argv) {
  apps::ModelDescription description{{"model", "lenet"}, {"variant", "article"}};
  std::string recipe = "default";
  apps::Program program{
      .name = "train_lenet",
      .about =
          "Trains LeNet on Fashion-MNIST. All devices hold the same weights; each computes\n"
          "the gradients of its part of the batch, an allreduce sums them, and all take\n"
          "the same step.",
      .examples =
          "Examples:\n"
          "  ./lab train_lenet --devices 2                   ten epochs on two devices\n"
          "  ./lab train_lenet --epochs 1 --limit 6000       a quick look\n"
          "  ./lab train_lenet --devices 4 --check-lockstep  see that replicas never differ",
  };
  program.add_options = [&](CLI::App& app) {
    app.add_option(
           "--model", description["variant"],
           "article: ReLU and max pooling. chapter: 1-20-50 channels, average pooling. classic: sigmoid, "
           "as in 1998.")
        ->group("Model");
    app.add_option(
           "--recipe", recipe,
           "article: --lr 0.1 --momentum 0 --weight-decay 0 --schedule constant --clip-norm 0, as the "
           "article ran it.")
        ->group("Training");
  };
  program.model = [&](const CLI::App& app, apps::Options& options) {
    apply_recipe(recipe, app, options);
    const apps::Model model = apps::named_model(description);
    if (description["variant"] == "article" && options.init == "normal" && !options.quiet)
      fmt::print(
          "note: with --init normal this network hardly leaves its start: at --lr 0.1 its accuracy stayed at "
          "0.1000 for ten epochs\n");
    return model;
  };
  return apps::run(argc, argv, program);
}
