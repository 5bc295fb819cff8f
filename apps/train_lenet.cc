// Trains LeNet on Fashion-MNIST, on any number of devices.
#include "apps/common/options.h"
#include "apps/common/training.h"
#include "nn/models/lenet.h"

#include <fmt/format.h>

using namespace lockstep;

namespace {

struct LeNetOptions : apps::Options {
  std::string recipe = "default";
};

// What the article ran; an option that was typed keeps its value.
void apply_recipe(const CLI::App& app, LeNetOptions& options) {
  const bool article =
      apps::choose<bool>("--recipe", options.recipe, {{"default", false}, {"article", true}});
  if (!article) return;
  const auto typed = [&app](const char* name) { return app.get_option(name)->count() > 0; };
  if (!typed("--lr")) options.lr = 0.1;
  if (!typed("--momentum")) options.momentum = 0;
  if (!typed("--weight-decay")) options.weight_decay = 0;
  if (!typed("--schedule")) options.schedule = "constant";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Trains LeNet on Fashion-MNIST. All devices hold the same weights; each computes\n"
      "the gradients of its part of the batch, an allreduce sums them, and all take\n"
      "the same step.",
      "train_lenet");
  LeNetOptions options;
  options.model = "article";
  apps::add_options(app, options);
  app.add_option(
         "--model", options.model,
         "article: ReLU and max pooling. chapter: 1-20-50 channels, average pooling. classic: sigmoid, as in "
         "1998.")
      ->group("Training");
  app.add_option(
         "--recipe", options.recipe,
         "article: --lr 0.1 --momentum 0 --weight-decay 0 --schedule constant, as the article ran it.")
      ->group("Training");
  app.footer(
      "Examples:\n"
      "  ./lab train_lenet --devices 2                   ten epochs on two devices\n"
      "  ./lab train_lenet --epochs 1 --limit 6000       a quick look\n"
      "  ./lab train_lenet --devices 4 --check-lockstep  see that replicas never differ");
  if (const int exit_code = apps::parse(app, argc, argv); exit_code >= 0) return exit_code;

  return apps::run("train_lenet", [&] {
    apply_recipe(app, options);
    const auto variant = apps::choose<nn::LeNet>(
        "--model", options.model,
        {{"article", nn::LeNet::article}, {"chapter", nn::LeNet::chapter}, {"classic", nn::LeNet::classic}});
    if (variant == nn::LeNet::article && options.init == "normal" && !options.quiet)
      fmt::print(
          "note: with --init normal this network hardly leaves its start: at --lr 0.1 its accuracy stayed at "
          "0.1000 for ten epochs\n");
    return apps::train(options, [variant](const Device& device) { return nn::lenet(variant, device); });
  });
}
