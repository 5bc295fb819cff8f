#include "apps/common/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "parallel/collective/plan.h"

namespace lockstep::apps {
namespace {

constexpr double kShortestRun = 5;  // in warm-ups, unless --warmup-epochs is typed
constexpr double kAdamRate = 1e-3, kAdamDecay = 0, kAdamWDecay = 1e-2;  // PyTorch's

void add_device_options(CLI::App& app, Options& options) {
  const char* group = "Devices";
  app.add_option(
         "--devices", options.devices,
         "Train on this many devices. With fewer physical ones, several share one, and the program says so.")
      ->group(group);
  app.add_option("--allreduce", options.allreduce,
                 fmt::format("How gradients are summed over the devices: {}.",
                             fmt::join(collective::algorithm_names(), ", ")))
      ->group(group);
  app.add_option(
         "--math", options.math,
         "library: cuBLAS and cuDNN for the heavy matrix work. own: only the kernels written here (slow on a "
         "CPU).")
      ->group(group);
  app.add_option(
         "--precision", options.precision,
         "What convolutions and matrix products multiply: fp32, tf32 (on a GPU that has it), or bf16, "
         "which activations then are too. Weights and sums stay fp32.")
      ->group(group);
  app.add_option("--reduce-in", options.reduce_in,
                 "What gradients are summed over the devices in: fp32, or bf16, which sends half the bytes.")
      ->group(group);
  app.add_flag("--sync-batch-norm", options.sync_batch_norm,
               "Batch norm uses the statistics of the whole batch, not of each device's part of it.")
      ->group(group);
  app.add_flag("--check-lockstep", options.check_lockstep,
               "After every step, compare the weights of all devices bit for bit, and stop at a difference.")
      ->group(group);
}

void add_training_options(CLI::App& app, Options& options) {
  const char* group = "Training";
  app.add_option("--recipe", options.recipe,
                 "default: as said here. article: --lr 0.1 --momentum 0 --weight-decay 0 --schedule constant "
                 "--clip-norm 0, as the article ran it; what is typed beside it holds.")
      ->group(group);
  app.add_option("--epochs", options.epochs, "Go through the training images this many times.")->group(group);
  app.add_option("--batch-size", options.batch_size,
                 "Images that are computed at once, over all devices together.")
      ->group(group);
  app.add_option("--accumulate", options.accumulate,
                 "A step sums the gradients of this many batches: as one of so many times --batch-size, "
                 "without its memory.")
      ->group(group);
  app.add_option("--init", options.init, "How weights start: kaiming, xavier or normal (deviation 0.01).")
      ->group(group);
  app.add_option("--seed", options.seed,
                 "The same seed, batch and devices give the same weights, bit for bit.")
      ->group(group);
  app.add_option("--label-smoothing", options.label_smoothing,
                 "This share of the target goes from the label to all classes alike.")
      ->group(group);
  app.add_option("--clip-norm", options.clip_norm,
                 "Gradients whose norm, over all parameters together, is larger are shortened to it. 0: none "
                 "are.")
      ->group(group);
}

void add_optimizer_options(CLI::App& app, Options& options) {
  const char* group = "Optimizer";
  app.add_option("--optimizer", options.optimizer,
                 "sgd, adam, or adamw (Adam whose decay does not pass through the moments).")
      ->group(group);
  app.add_option(
         "--momentum", options.momentum,
         "sgd: share of the last step that is kept (Nesterov's form), 0 for none. adam, adamw: beta1.")
      ->group(group);
  app.add_option("--weight-decay", options.weight_decay,
                 fmt::format("Pulls weights towards 0. Default with adam: {}, with adamw: {}.", kAdamDecay,
                             kAdamWDecay))
      ->group(group);
  app.add_option("--decay-on", options.decay_on,
                 "all: every parameter decays. weights: not biases, nor batch norm's scale and shift.")
      ->group(group);
}

void add_rate_options(CLI::App& app, Options& options) {
  const char* group = "Learning rate";
  app.add_option(
         "--lr", options.lr,
         fmt::format("Learning rate: how far a step goes. Default with adam and adamw: {}.", kAdamRate))
      ->group(group);
  app.add_option("--lr-scale", options.lr_scale,
                 fmt::format("linear: --lr times the images of a step / {}, for steps of another size. none: "
                             "as it is.",
                             options.base_batch))
      ->group(group);
  app.add_option("--schedule", options.schedule,
                 "constant; step: times --step-gamma every --step-every epochs; cosine: falls to 0 as half a "
                 "cosine.")
      ->group(group);
  app.add_option(
         "--warmup-epochs", options.warmup_epochs,
         "The rate rises from 0 during these first epochs. Default: at most a fifth of --epochs, and 0 "
         "with --schedule constant and no --lr-scale.")
      ->group(group);
  app.add_option("--step-every", options.step_every, "Epochs between two falls of --schedule step.")
      ->group(group);
  app.add_option("--step-gamma", options.step_gamma, "What the rate is multiplied by at each of them.")
      ->group(group);
}

void add_data_options(CLI::App& app, Options& options) {
  app.add_option("--augment", options.augment,
                 "Random changes of the training images, joined by +: crop (shifts), flip (mirrors), cutout "
                 "(cuts a hole), as in crop+flip; or none.")
      ->group("Augmentation");
  app.add_option("--crop-padding", options.crop_padding, "crop: shifts by up to this many pixels.")
      ->group("Augmentation");
  app.add_option("--cutout-size", options.cutout_size, "cutout: side of the hole, in pixels.")
      ->group("Augmentation");
  app.add_option(
         "--data-dir", options.data_dir,
         "Folder with the four Fashion-MNIST files. Else $LOCKSTEP_DATA, data/fashion-mnist, and Debian's "
         "package are tried.")
      ->group("Data");
  app.add_option("--limit", options.limit, "Only the first N training images, for a quick look.")
      ->group("Data")
      ->default_str("all");
}

void add_output_options(CLI::App& app, Options& options) {
  app.add_option("--json", options.json,
                 "Write lines of JSON to this file: the options, devices and data, then an epoch each, then "
                 "the totals. "
                 "- is standard output, where nothing else is printed then.")
      ->group("Output");
  app.add_flag("--quiet", options.quiet, "Print errors only.")->group("Output");
}

void add_checkpoint_options(CLI::App& app, Options& options) {
  const char* group = "Checkpoints";
  app.add_option(
         "--checkpoint", options.checkpoint,
         "Save in this folder all that the run needs to go on if it is stopped, however that happens.")
      ->group(group);
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "Save after so many steps, and at the end. Without it: at the end of each epoch.")
      ->group(group)
      ->default_str("");
  app.add_option("--checkpoint-keep", options.checkpoint_keep, "So many checkpoints stay, the newest ones.")
      ->group(group);
  app.add_flag(
         "--resume", options.resume,
         "Go on from the newest checkpoint in the folder: the same weights, bit for bit, as if the run had "
         "not stopped. Give the same options as before.")
      ->group(group);
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
  add_device_options(app, options);
  add_training_options(app, options);
  add_optimizer_options(app, options);
  add_rate_options(app, options);
  add_data_options(app, options);
  add_checkpoint_options(app, options);
  add_output_options(app, options);
}

void fill_defaults(const CLI::App& app, Options& options) {
  apply_recipe(app, options);
  const auto typed = [&app](const char* name) { return app.get_option(name)->count() > 0; };
  check_value(!typed("--limit") || options.limit != 0, "--limit", 0, "1 or more, or leave it out for all");
  if (options.optimizer == "adam" || options.optimizer == "adamw") {
    if (!typed("--lr")) options.lr = kAdamRate;
    if (!typed("--weight-decay"))
      options.weight_decay = options.optimizer == "adam" ? kAdamDecay : kAdamWDecay;
  }
  if (!typed("--warmup-epochs")) {
    const bool constant = options.schedule == "constant" && options.lr_scale == "none";
    const double most = constant ? 0 : static_cast<double>(options.epochs) / kShortestRun;
    options.warmup_epochs = std::min(options.warmup_epochs, most);
  }
  if (options.json == "-") options.quiet = true;
}

std::map<std::string, std::string> run_options(const Options& options) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  std::map<std::string, std::string> all{
      {"--batch-size", text(options.batch_size)},
      {"--init", options.init},
      {"--seed", text(options.seed)},
      {"--label-smoothing", text(options.label_smoothing)},
      {"--clip-norm", text(options.clip_norm)},
      {"--optimizer", options.optimizer},
      {"--momentum", text(options.momentum)},
      {"--weight-decay", text(options.weight_decay)},
      {"--decay-on", options.decay_on},
      {"--lr", text(options.lr)},
      {"--lr-scale", options.lr_scale},
      {"--schedule", options.schedule},
      {"--warmup-epochs", text(options.warmup_epochs)},
      {"--augment", options.augment},
      {"--precision", options.precision},
      {"--reduce-in", options.reduce_in},
      {"--sync-batch-norm", options.sync_batch_norm ? "yes" : "no"},
      {"--limit", options.limit == 0 ? "all" : text(options.limit)},
  };
  if (options.accumulate != 1) all["--accumulate"] = text(options.accumulate);
  if (options.schedule == "cosine") all["--epochs"] = text(options.epochs);  // else it may simply go on
  if (options.schedule == "step") {
    all["--step-every"] = text(options.step_every);
    all["--step-gamma"] = text(options.step_gamma);
  }
  if (options.augment.find("crop") != std::string::npos) all["--crop-padding"] = text(options.crop_padding);
  if (options.augment.find("cutout") != std::string::npos) all["--cutout-size"] = text(options.cutout_size);
  return all;
}

std::map<std::string, std::string> all_options(const Options& options) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  const auto flag = [](bool set) { return set ? "yes" : "no"; };
  std::map<std::string, std::string> all = run_options(options);
  all.insert({{"--devices", text(options.devices)},
              {"--allreduce", options.allreduce},
              {"--math", options.math},
              {"--accumulate", text(options.accumulate)},
              {"--check-lockstep", flag(options.check_lockstep)},
              {"--epochs", text(options.epochs)},
              {"--step-every", text(options.step_every)},
              {"--step-gamma", text(options.step_gamma)},
              {"--crop-padding", text(options.crop_padding)},
              {"--cutout-size", text(options.cutout_size)},
              {"--data-dir", options.data_dir},
              {"--checkpoint", options.checkpoint},
              {"--checkpoint-every", text(options.checkpoint_every)},
              {"--checkpoint-keep", text(options.checkpoint_keep)},
              {"--resume", flag(options.resume)},
              {"--json", options.json},
              {"--quiet", flag(options.quiet)}});
  return all;
}

}  // namespace lockstep::apps
