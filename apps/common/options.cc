#include "apps/common/options.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <sstream>

namespace lockstep::apps {
namespace {

constexpr int kExitUsage = 2;

void check(bool good, const char* option, double value, const char* wanted) {
  if (!good) throw Error(fmt::format("{} is {}: use {}", option, value, wanted));
}

// CLI11's help, with descriptions that are broken into lines of a terminal's usual width.
class Help : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    constexpr size_t kWidth = 80, kColumn = 26;
    const std::string indent(kColumn, ' ');
    std::string text = "  " + make_option_name(option, is_positional) + make_option_opts(option);
    text += text.size() < kColumn ? std::string(kColumn - text.size(), ' ') : "\n" + indent;
    size_t column = kColumn;
    std::istringstream words(make_option_desc(option));
    for (std::string word; words >> word; column += word.size()) {
      const bool first = column == kColumn;
      if (!first && column + 1 + word.size() > kWidth) {
        text += "\n" + indent;
        column = kColumn;
      } else if (!first) {
        text += " ";
        ++column;
      }
      text += word;
    }
    return text + "\n";
  }
};

}  // namespace

void add_options(CLI::App& app, Options& options) {
  app.option_defaults()->always_capture_default();
  app.formatter(std::make_shared<Help>());
  app.add_option(
         "--devices", options.devices,
         "Train on this many devices. With fewer physical ones, several share one, and the program says so.")
      ->group("Devices");
  app.add_option("--allreduce", options.allreduce,
                 "How gradients are summed over the devices: ring, tree or star.")
      ->group("Devices");
  app.add_option(
         "--math", options.math,
         "library: cuBLAS and cuDNN for the heavy matrix work. own: only the kernels written here (slow on a "
         "CPU).")
      ->group("Devices");
  app.add_flag("--check-lockstep", options.check_lockstep,
               "After every step, compare the weights of all devices bit for bit, and stop at a difference.")
      ->group("Devices");

  app.add_option("--epochs", options.epochs, "Go through the training images this many times.")
      ->group("Training");
  app.add_option("--batch-size", options.batch_size, "Images a step, over all devices together.")
      ->group("Training");
  app.add_option("--lr", options.lr, "Learning rate: how far a step goes.")->group("Training");
  app.add_option("--momentum", options.momentum,
                 "Share of the last step that is kept (Nesterov's form). 0: none.")
      ->group("Training");
  app.add_option("--weight-decay", options.weight_decay, "Pulls all weights towards 0.")->group("Training");
  app.add_option("--schedule", options.schedule,
                 "constant, or cosine: the rate rises during the first epoch, then falls to 0.")
      ->group("Training");
  app.add_option("--init", options.init, "How weights start: kaiming, xavier or normal (deviation 0.01).")
      ->group("Training");
  app.add_option("--seed", options.seed,
                 "The same seed, batch and devices give the same weights, bit for bit.")
      ->group("Training");

  app.add_option(
         "--data-dir", options.data_dir,
         "Folder with the four Fashion-MNIST files. Else $LOCKSTEP_DATA, data/fashion-mnist, and Debian's "
         "package are tried.")
      ->group("Data");
  app.add_option("--limit", options.limit, "Only the first N training images, for a quick look.")
      ->group("Data")
      ->default_str("all");

  app.add_option("--json", options.json,
                 "Write a line of JSON an epoch, and one with the totals, to this file.")
      ->group("Output");
  app.add_flag("--quiet", options.quiet, "Print errors only.")->group("Output");
}

Settings validate(const Options& options) {
  check(options.devices >= 1, "--devices", options.devices, "1 or more");
  check(options.batch_size >= 1, "--batch-size", static_cast<double>(options.batch_size), "1 or more");
  check(options.epochs >= 1, "--epochs", static_cast<double>(options.epochs), "1 or more");
  check(options.limit >= 0, "--limit", static_cast<double>(options.limit), "1 or more");
  check(std::isfinite(options.lr) && options.lr > 0, "--lr", options.lr, "a positive number");
  check(options.momentum >= 0 && options.momentum < 1, "--momentum", options.momentum,
        "0 or more, and less than 1");
  check(std::isfinite(options.weight_decay) && options.weight_decay >= 0, "--weight-decay",
        options.weight_decay, "0 or a positive number");
  Settings settings{
      .sgd = {.learning_rate = static_cast<float>(options.lr),
              .momentum = static_cast<float>(options.momentum),
              .weight_decay = static_cast<float>(options.weight_decay),
              .nesterov = options.momentum > 0},
      .schedule =
          choose<nn::Schedule>("--schedule", options.schedule,
                               {{"constant", nn::Schedule::constant}, {"cosine", nn::Schedule::cosine}}),
      .init = choose<nn::Init>(
          "--init", options.init,
          {{"kaiming", nn::Init::kaiming}, {"xavier", nn::Init::xavier}, {"normal", nn::Init::normal}}),
      .math = choose<kernels::Math>("--math", options.math,
                                    {{"library", kernels::Math::library}, {"own", kernels::Math::own}}),
      .allreduce = parallel::algorithm_named(options.allreduce, "--allreduce"),
  };
  return settings;
}

int parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return -1;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::string asked = app.remaining().front();
    fmt::print(stderr, "{}: unknown argument '{}', did you mean '{}'? See --help\n", app.get_name(), asked,
               nearest_name(asked, names));
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{}: {}. See --help\n", app.get_name(), error.what());
  }
  return kExitUsage;
}

}  // namespace lockstep::apps
