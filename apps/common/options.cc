// One table has all options: parsing, --help, what a number may be, and what a resumed run must have in
// common with the one before come from it.
#include "apps/common/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>
#include <vector>

#include "apps/common/optimizers.h"
#include "parallel/collective/plan.h"

namespace lockstep::apps {
namespace {

constexpr double kShortestRun = 5;  // in warm-ups, unless --warmup-epochs is typed

using Field = std::variant<int Options::*, int64_t Options::*, uint64_t Options::*, double Options::*,
                           std::string Options::*, bool Options::*>;

// What a number may be, and the same in words.
struct Range {
  bool (*holds)(double value);
  const char* words;
};
constexpr Range kAny{[](double) { return true; }, ""};
constexpr Range kAtLeastOne{[](double v) { return v >= 1; }, "1 or more"};
constexpr Range kCount{[](double v) { return v >= 0; }, "1 or more"};  // 0: not given
constexpr Range kPositive{[](double v) { return std::isfinite(v) && v > 0; }, "a positive number"};
constexpr Range kNotNegative{[](double v) { return std::isfinite(v) && v >= 0; }, "0 or a positive number"};
constexpr Range kBelowOne{[](double v) { return v >= 0 && v < 1; }, "0 or more, and less than 1"};
constexpr Range kFactor{[](double v) { return v > 0 && v <= 1; }, "more than 0, and at most 1"};
constexpr Range kCropPadding{[](double v) { return v >= 1 && v < 28; }, "1 to 27, or --augment without crop"};
constexpr Range kCutoutSize{[](double v) { return v >= 1 && v <= 28; },
                            "1 to 28, or --augment without cutout"};

// Whether an option makes the run what it is, with those options.
using PartOfRun = bool (*)(const Options& options);
bool never(const Options& /*options*/) {
  return false;
}
bool always(const Options& /*options*/) {
  return true;
}
bool with_accumulation(const Options& options) {
  return options.accumulate != 1;
}
bool with_cosine(const Options& options) {
  return options.schedule == "cosine";  // else a run of more epochs may simply go on
}
bool with_steps(const Options& options) {
  return options.schedule == "step";
}
bool with_crop(const Options& options) {
  return options.augment.find("crop") != std::string::npos;
}
bool with_cutout(const Options& options) {
  return options.augment.find("cutout") != std::string::npos;
}

struct Row {
  const char* group;
  const char* name;
  Field field;
  PartOfRun part_of_run;
  std::string help;
  Range range = kAny;
  std::optional<std::string> zero = {};  // what 0 is shown as
};

// "sgd (steps down the gradient), adam (...)"
std::string describe_optimizers() {
  std::vector<std::string> all;
  for (const OptimizerChoice& choice : optimizers())
    all.push_back(fmt::format("{} ({})", choice.name, choice.about));
  return fmt::format("{}", fmt::join(all, ", "));
}

// "Default with adam: 0, with adamw: 0.01."
std::string describe_defaults(std::optional<double> OptimizerChoice::* value) {
  std::vector<std::string> all;
  for (const OptimizerChoice& choice : optimizers())
    if (choice.*value) all.push_back(fmt::format("with {}: {}", choice.name, *(choice.*value)));
  return fmt::format("Default {}.", fmt::join(all, ", "));
}

std::vector<Row> table(const Options& defaults) {
  return {
      {"Devices", "--devices", &Options::devices, never,
       "Train on this many devices. With fewer physical ones, several share one, and the program says so.",
       kAtLeastOne},
      {"Devices", "--allreduce", &Options::allreduce, never,
       fmt::format("How gradients are summed over the devices: {}.",
                   fmt::join(collective::algorithm_names(), ", "))},
      {"Devices", "--math", &Options::math, never,
       "library: cuBLAS and cuDNN for the heavy matrix work. own: only the kernels written here (slow on a "
       "CPU)."},
      {"Devices", "--precision", &Options::precision, always,
       "What convolutions and matrix products multiply: fp32, tf32 (on a GPU that has it), or bf16, which "
       "activations then are too. Weights and sums stay fp32."},
      {"Devices", "--reduce-in", &Options::reduce_in, always,
       "What gradients are summed over the devices in: fp32, or bf16, which sends half the bytes."},
      {"Devices", "--sync-batch-norm", &Options::sync_batch_norm, always,
       "Batch norm uses the statistics of the whole batch, not of each device's part of it."},
      {"Devices", "--check-lockstep", &Options::check_lockstep, never,
       "After every step, compare the weights of all devices bit for bit, and stop at a difference."},
      {"Devices", "--check-allreduce", &Options::check_allreduce, never,
       "Hold every sum of gradients against one computed on the host, bit for bit, and stop at a "
       "difference."},

      {"Training", "--recipe", &Options::recipe, never,
       "default: as said here. article: --lr 0.1 --momentum 0 --weight-decay 0 --schedule constant "
       "--clip-norm 0, as the article ran it; what is typed beside it holds."},
      {"Training", "--epochs", &Options::epochs, with_cosine,
       "Go through the training images this many times.", kAtLeastOne},
      {"Training", "--batch-size", &Options::batch_size, always,
       "Images that are computed at once, over all devices together.", kAtLeastOne},
      {"Training", "--accumulate", &Options::accumulate, with_accumulation,
       "A step sums the gradients of this many batches: as one of so many times --batch-size, without its "
       "memory.",
       kAtLeastOne},
      {"Training", "--init", &Options::init, always,
       "How weights start: kaiming, xavier or normal (deviation 0.01)."},
      {"Training", "--seed", &Options::seed, always,
       "The same seed, batch and devices give the same weights, bit for bit."},
      {"Training", "--label-smoothing", &Options::label_smoothing, always,
       "This share of the target goes from the label to all classes alike.", kBelowOne},
      {"Training", "--clip-norm", &Options::clip_norm, always,
       "Gradients whose norm, over all parameters together, is larger are shortened to it. 0: none are.",
       kNotNegative},

      {"Optimizer", "--optimizer", &Options::optimizer, always, describe_optimizers() + "."},
      {"Optimizer", "--momentum", &Options::momentum, always,
       "sgd: share of the last step that is kept (Nesterov's form), 0 for none. adam, adamw: beta1.",
       kBelowOne},
      {"Optimizer", "--weight-decay", &Options::weight_decay, always,
       "Pulls weights towards 0. " + describe_defaults(&OptimizerChoice::weight_decay), kNotNegative},
      {"Optimizer", "--decay-on", &Options::decay_on, always,
       "all: every parameter decays. weights: not biases, nor batch norm's scale and shift."},

      {"Learning rate", "--lr", &Options::lr, always,
       "Learning rate: how far a step goes. " + describe_defaults(&OptimizerChoice::learning_rate),
       kPositive},
      {"Learning rate", "--lr-scale", &Options::lr_scale, always,
       fmt::format("linear: --lr times the images of a step / {}, for steps of another size. none: as it is.",
                   defaults.base_batch)},
      {"Learning rate", "--schedule", &Options::schedule, always,
       "constant; step: times --step-gamma every --step-every epochs; cosine: falls to 0 as half a cosine."},
      {"Learning rate", "--warmup-epochs", &Options::warmup_epochs, always,
       "The rate rises from 0 during these first epochs. Default: at most a fifth of --epochs, and 0 with "
       "--schedule constant and no --lr-scale.",
       kNotNegative},
      {"Learning rate", "--step-every", &Options::step_every, with_steps,
       "Epochs between two falls of --schedule step.", kAtLeastOne},
      {"Learning rate", "--step-gamma", &Options::step_gamma, with_steps,
       "What the rate is multiplied by at each of them.", kFactor},

      {"Augmentation", "--augment", &Options::augment, always,
       "Random changes of the training images, joined by +: crop (shifts), flip (mirrors), cutout (cuts a "
       "hole), as in crop+flip; or none."},
      {"Augmentation", "--crop-padding", &Options::crop_padding, with_crop,
       "crop: shifts by up to this many pixels.", kCropPadding},
      {"Augmentation", "--cutout-size", &Options::cutout_size, with_cutout,
       "cutout: side of the hole, in pixels.", kCutoutSize},

      {"Data", "--data-dir", &Options::data_dir, never,
       "Folder with the four Fashion-MNIST files. Else $LOCKSTEP_DATA, data/fashion-mnist, and Debian's "
       "package are tried."},
      {"Data", "--limit", &Options::limit, always, "Only the first N training images, for a quick look.",
       kCount, "all"},

      {"Checkpoints", "--checkpoint", &Options::checkpoint, never,
       "Save in this folder all that the run needs to go on if it is stopped, however that happens."},
      {"Checkpoints", "--checkpoint-every", &Options::checkpoint_every, never,
       "Save after so many steps, and at the end. Without it: at the end of each epoch.", kCount, ""},
      {"Checkpoints", "--checkpoint-keep", &Options::checkpoint_keep, never,
       "So many checkpoints stay, the newest ones.", kAtLeastOne},
      {"Checkpoints", "--resume", &Options::resume, never,
       "Go on from the newest checkpoint in the folder: the same weights, bit for bit, as if the run had not "
       "stopped. Give the same options as before."},

      {"Output", "--json", &Options::json, never,
       "Write lines of JSON to this file: the options, devices and data, then a line per epoch, then the "
       "totals. "
       "- is standard output, where nothing else is printed then."},
      {"Output", "--paths", &Options::paths, never,
       "Print which way each convolution goes, forward and back, and why."},
      {"Output", "--quiet", &Options::quiet, never, "Print errors only."},
  };
}

// As it is typed; "yes" and "no" for a flag.
std::string text_of(const Row& row, const Options& options) {
  return std::visit(
      [&](auto field) {
        const auto& value = options.*field;
        if constexpr (std::is_same_v<decltype(field), bool Options::*>)
          return std::string(value ? "yes" : "no");
        else
          return row.zero && fmt::format("{}", value) == "0" ? *row.zero : fmt::format("{}", value);
      },
      row.field);
}

// What the article ran; an option that was typed keeps its value.
void apply_recipe(const CLI::App& app, Options& options) {
  if (!choose<bool>("--recipe", options.recipe, {{"default", false}, {"article", true}})) return;
  const auto typed = [&app](const char* name) { return app.get_option(name)->count() > 0; };
  if (!typed("--lr")) options.lr = 0.1;
  if (!typed("--momentum")) options.momentum = 0;
  if (!typed("--weight-decay")) options.weight_decay = 0;
  if (!typed("--schedule")) options.schedule = "constant";
  if (!typed("--clip-norm")) options.clip_norm = 0;
}

}  // namespace

void add_options(CLI::App& app, Options& options) {
  for (const Row& row : table(options)) {
    CLI::Option* const option = std::visit(
        [&](auto field) {
          if constexpr (std::is_same_v<decltype(field), bool Options::*>)
            return app.add_flag(row.name, options.*field, row.help);
          else
            return app.add_option(row.name, options.*field, row.help);
        },
        row.field);
    option->group(row.group);
    if (row.zero) option->default_str(*row.zero);
  }
}

void check_values(const Options& options) {
  for (const Row& row : table(options))
    std::visit(
        [&](auto field) {
          if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(options.*field)>>) {
            const auto value = static_cast<double>(options.*field);
            check_value(row.range.holds(value), row.name, value, row.range.words);
          }
        },
        row.field);
}

void fill_defaults(const CLI::App& app, Options& options) {
  apply_recipe(app, options);
  const auto typed = [&app](const char* name) { return app.get_option(name)->count() > 0; };
  check_value(!typed("--limit") || options.limit != 0, "--limit", 0, "1 or more, or leave it out for all");
  const OptimizerChoice& optimizer = optimizer_named(options.optimizer);
  if (!typed("--lr")) options.lr = optimizer.learning_rate.value_or(options.lr);
  if (!typed("--weight-decay")) options.weight_decay = optimizer.weight_decay.value_or(options.weight_decay);
  if (!typed("--warmup-epochs")) {
    const bool constant = options.schedule == "constant" && options.lr_scale == "none";
    const double most = constant ? 0 : static_cast<double>(options.epochs) / kShortestRun;
    options.warmup_epochs = std::min(options.warmup_epochs, most);
  }
  if (options.json == "-") options.quiet = true;
}

std::map<std::string, std::string> run_options(const Options& options) {
  std::map<std::string, std::string> result;
  for (const Row& row : table(options))
    if (row.part_of_run(options)) result[row.name] = text_of(row, options);
  return result;
}

std::map<std::string, std::string> all_options(const Options& options) {
  std::map<std::string, std::string> result;
  for (const Row& row : table(options)) result[row.name] = text_of(row, options);
  return result;
}

}  // namespace lockstep::apps
