#include "apps/common/settings.h"

#include <fmt/format.h>

#include "apps/common/optimizers.h"
#include "nn/data/fashion_mnist.h"

namespace lockstep::apps {
namespace {

// What concerns more than one option.
void check_together(const Options& options) {
  if (options.schedule == "cosine" && options.warmup_epochs >= static_cast<double>(options.epochs))
    throw Error(fmt::format("--warmup-epochs is {} of {} epochs: the rate would never fall: use less",
                            options.warmup_epochs, options.epochs));
  if (!options.checkpoint.empty()) return;
  if (options.resume) throw Error("--resume: from where? Use --checkpoint FOLDER, as before");
  if (options.checkpoint_every > 0)
    throw Error("--checkpoint-every: where to? Use --checkpoint FOLDER as well");
}

nn::MakeOptimizer make_optimizer(const Options& options) {
  const auto decay_on =
      choose<nn::DecayOn>("--decay-on", options.decay_on,
                          {{"all", nn::DecayOn::all_parameters}, {"weights", nn::DecayOn::weights}});
  return optimizer_named(options.optimizer)
      .make({.momentum = options.momentum,
             .weight_decay = static_cast<float>(options.weight_decay),
             .decay_on = decay_on});
}

kernels::Augmentation augmentation(const Options& options) {
  kernels::Augmentation result;
  if (options.augment == "none") return result;
  enum class Change { crop, flip, cutout };
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = options.augment.find('+', begin);
    switch (choose<Change>("--augment", options.augment.substr(begin, end - begin),
                           {{"crop", Change::crop}, {"flip", Change::flip}, {"cutout", Change::cutout}})) {
      case Change::crop:
        result.padding = options.crop_padding;
        break;
      case Change::flip:
        result.flip = true;
        break;
      case Change::cutout:
        result.cutout = options.cutout_size;
        break;
    }
  }
  return result;
}

int64_t warmup_steps(const Settings& settings, int64_t steps_an_epoch) {
  return std::llround(settings.warmup_epochs * static_cast<double>(steps_an_epoch));
}

double scaled_rate(const Options& options) {
  const bool linear = choose<bool>("--lr-scale", options.lr_scale, {{"none", false}, {"linear", true}});
  const double rate = options.lr * static_cast<double>(options.accumulate);  // where it is scaled
  return linear ? nn::scaled_rate(rate, options.batch_size, options.base_batch) : options.lr;
}

}  // namespace

Settings validate(const Options& options) {
  check_values(options);
  check_together(options);
  return {
      .math = choose<kernels::Math>("--math", options.math,
                                    {{"library", kernels::Math::library}, {"own", kernels::Math::own}}),
      .precision = choose<kernels::Precision>("--precision", options.precision,
                                              {{"fp32", kernels::Precision::fp32},
                                               {"tf32", kernels::Precision::tf32},
                                               {"bf16", kernels::Precision::bf16}}),
      .reduce_in = choose<DType>("--reduce-in", options.reduce_in,
                                 {{"fp32", DType::float32}, {"bf16", DType::bfloat16}}),
      .allreduce = collective::algorithm_named(options.allreduce, "--allreduce"),
      .statistics =
          options.sync_batch_norm ? parallel::BatchStatistics::batch : parallel::BatchStatistics::shard,
      .init = choose<nn::Init>(
          "--init", options.init,
          {{"kaiming", nn::Init::kaiming}, {"xavier", nn::Init::xavier}, {"normal", nn::Init::normal}}),
      .make_optimizer = make_optimizer(options),
      .augmentation = augmentation(options),
      .learning_rate = scaled_rate(options),
      .schedule = choose<nn::Schedule>("--schedule", options.schedule,
                                       {{"constant", nn::Schedule::constant},
                                        {"step", nn::Schedule::step},
                                        {"cosine", nn::Schedule::cosine}}),
      .epochs = options.epochs,
      .warmup_epochs = options.warmup_epochs,
      .decay_every = options.step_every,
      .decay_gamma = options.step_gamma,
  };
}

double rate_at(const Settings& settings, int64_t step, int64_t steps_an_epoch) {
  return settings.learning_rate *
         nn::schedule_factor(settings.schedule, step, settings.epochs * steps_an_epoch,
                             warmup_steps(settings, steps_an_epoch),
                             {.every = settings.decay_every * steps_an_epoch, .gamma = settings.decay_gamma});
}

std::string describe_rate(const Settings& settings, int64_t steps_an_epoch) {
  const int64_t warmup = warmup_steps(settings, steps_an_epoch);
  std::string text = fmt::format("rate: {:.4g}", settings.learning_rate);
  if (warmup > 0) text = fmt::format("rate: up to {:.4g} in {} steps", settings.learning_rate, warmup);
  switch (settings.schedule) {
    case nn::Schedule::constant:
      return text + (warmup > 0 ? ", then constant" : ", constant");
    case nn::Schedule::step:
      return text + fmt::format(", then times {:.4g} every {} steps", settings.decay_gamma,
                                settings.decay_every * steps_an_epoch);
    case nn::Schedule::cosine:
      return text + fmt::format(", then down to 0 by step {}", settings.epochs * steps_an_epoch);
  }
  return text;
}

}  // namespace lockstep::apps
