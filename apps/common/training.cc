#include "apps/common/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <span>

#include "apps/common/batch_check.h"
#include "apps/common/checkpointing.h"
#include "apps/common/interrupt.h"
#include "apps/common/output.h"
#include "apps/common/progress_bar.h"
#include "apps/common/report.h"
#include "apps/common/resident_data.h"
#include "apps/common/settings.h"
#include "apps/common/training_progress.h"
#include "core/peer.h"
#include "core/pool.h"
#include "core/sha256.h"
#include "nn/finite.h"
#include "nn/layers/conv_paths.h"
#include "parallel/replicas.h"
#include "parallel/trainer.h"

namespace lockstep::apps {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void print_model(const std::string& title, const nn::Module& model) {
  fmt::print("{}: {} parameters\n", title, model.parameter_count());
  size_t names = 10, layers = 28;
  for (const auto& [child, layer] : model.children()) {
    names = std::max(names, child.size());
    layers = std::max(layers, layer->describe().size());
  }
  std::set<const void*> counted;
  for (const auto& [child, layer] : model.children()) {
    int64_t count = 0;
    bool tied = false;  // to a layer above
    for (const Tensor& parameter : layer->parameters())
      if (counted.insert(parameter.identity()).second)
        count += parameter.size();
      else
        tied = true;
    fmt::print("  {:<{}} {:<{}} {:>10}{}\n", child, names, layer->describe(), layers, count,
               tied ? " tied" : "");
  }
}

// The ways that convolutions take with the rows that a device has of a batch.
void print_paths(nn::Module& model, int64_t rows, int height, int width, const Device& device) {
  const std::vector<nn::ConvPathRow> all =
      nn::conv_paths(model, Tensor::zeros({rows, height, width, 1}, device));
  size_t names = 10, paths = 10;
  for (const nn::ConvPathRow& row : all) {
    names = std::max(names, row.layer.size());
    paths = std::max(paths, row.path.size());
  }
  fmt::print("convolutions, {} images per device:\n", rows);
  for (const nn::ConvPathRow& row : all)
    fmt::print("  {:<{}} {:<15} {:<{}} {}\n", row.layer, names, row.pass, row.path, paths, row.why);
}

// One run: what an epoch needs to know of it.
class Run {
 public:
  Run(const Options& options, const Settings& settings, const std::vector<Device>& devices, ResidentData data,
      const parallel::MakeModule& make_model, Checkpointing& checkpoints)
      : options_(options),
        settings_(settings),
        data_(std::move(data)),
        steps_(data::batches(data_.train_rows(),
                             std::min(options.accumulate * options.batch_size, data_.train_rows()))),
        trainer_(make_model, devices,
                 {.make_optimizer = settings.make_optimizer,
                  .algorithm = settings.allreduce,
                  .label_smoothing = static_cast<float>(options.label_smoothing),
                  .max_gradient_norm = static_cast<float>(options.clip_norm),
                  .statistics = settings.statistics,
                  .reduce_in = settings.reduce_in,
                  .check_allreduce = options.check_allreduce}),
        checkpoints_(checkpoints) {
    if (options.sync_batch_norm && model().named_buffers().empty())
      throw Error("--sync-batch-norm: this model has no batch norm");
    nn::initialise(trainer_.net().module(), settings.init, options.seed);
    trainer_.net().broadcast();
    data_.try_evaluation(trainer_.net());
  }

  nn::Module& model() const { return *trainer_.replicas()[0]; }
  int64_t steps_an_epoch() const { return static_cast<int64_t>(steps_.size()); }
  const TrainingProgress& progress() const { return progress_; }

  // Where --resume asks for it, goes on where the newest checkpoint was saved.
  void resume() {
    progress_ = checkpoints_.resume(trainer_);
    check_finite();
  }

  // Trains what is left of an epoch, saves it where that is due, and evaluates. False where it was asked to
  // stop; then everything so far is saved, where there are checkpoints.
  bool epoch() {
    if (!train_epoch()) {
      save();
      return false;
    }
    trainer_.net().combine_buffers();
    check_finite();
    if (checkpoints_.due_after_epoch(progress_, progress_.epoch + 1 == options_.epochs))
      checkpoints_.save(progress_, trainer_);
    const std::optional<double> accuracy = evaluate();
    if (!accuracy) {
      checkpoints_.save(progress_, trainer_);
      return false;
    }
    end_epoch(*accuracy);
    checkpoints_.evaluated(progress_, trainer_);
    return true;
  }

 private:
  // False where it was asked to stop.
  bool train_epoch() {
    data_.shuffle(options_.seed, progress_.epoch);
    const int64_t steps = steps_an_epoch();
    ProgressBar bar(epoch_label(), progress_.position, steps, options_.quiet);
    since_ = Clock::now();
    while (!interrupted()) {
      if (progress_.position == steps) {
        collect();
        return true;
      }
      step();
      if (options_.check_lockstep) check_lockstep();
      if (progress_.position < steps && checkpoints_.due_in_epoch(progress_)) save();
      if (bar.due()) {
        collect();
        bar.show(progress_.position, fmt::format("{:.0f} images/s  loss {:.4f}",
                                                 static_cast<double>(progress_.sums.rows) / progress_.seconds,
                                                 progress_.sums.mean_loss()));
      }
    }
    return false;
  }

  // The test accuracy; none where it was asked to stop.
  std::optional<double> evaluate() {
    ProgressBar bar(epoch_label() + " test", 0, data_.test_rows(), options_.quiet);
    const auto watch = [&](int64_t rows) {
      if (bar.due())
        bar.show(rows, fmt::format("{:.0f} images/s", static_cast<double>(rows) / bar.seconds()));
      return !interrupted();
    };
    try {
      return data_.test_accuracy(trainer_.net(), watch);
    } catch (const nn::NotFinite& error) {
      checkpoints_.disproven();
      throw_not_finite(error.what());
    }
  }

  std::string epoch_label() const { return fmt::format("epoch {}/{}", progress_.epoch + 1, options_.epochs); }

  void end_epoch(double test_accuracy) {
    const EpochSums& sums = progress_.sums;
    progress_.results.push_back(
        {.epoch = progress_.epoch + 1,
         .train_loss = sums.mean_loss(),
         .train_accuracy = static_cast<double>(sums.correct) / static_cast<double>(sums.rows),
         .test_accuracy = test_accuracy,
         .learning_rate = rate_of((progress_.epoch + 1) * steps_an_epoch() - 1),
         .seconds = progress_.seconds,
         .images_per_second = static_cast<double>(sums.rows) / progress_.seconds,
         .allreduce_share = sums.allreduce_seconds / progress_.seconds});
    ++progress_.epoch;
    progress_.position = 0;
    progress_.seconds = 0;
    progress_.sums = {};
  }

  void step() {
    const data::Batch& rows = steps_[static_cast<size_t>(progress_.position)];
    const double rate = rate_of(progress_.epoch * steps_an_epoch() + progress_.position);
    data::Batch batch{rows.begin, std::min(rows.begin + options_.batch_size, rows.end)};
    for (; batch.end < rows.end; batch = {batch.end, std::min(batch.end + options_.batch_size, rows.end)})
      trainer_.accumulate(data_.shards(batch, settings_.augmentation));
    trainer_.step(data_.shards(batch, settings_.augmentation), static_cast<float>(rate));
    ++progress_.position;
    ++progress_.step;
    progress_.images += rows.end - rows.begin;
  }

  // Of a step of the whole run, from 0.
  double rate_of(int64_t step) const { return rate_at(settings_, step, steps_an_epoch()); }

  // Brings `progress_` up to date; the steps that are enqueued end first. A checkpoint's weights are worth
  // what comes next, so the first loss after it decides whether it stays.
  void collect() {
    const parallel::StepReport report = trainer_.report();
    if (!report.losses.empty()) {
      if (std::isfinite(report.losses.front()))
        checkpoints_.proven();
      else
        checkpoints_.disproven();
    }
    progress_.sums.add(report, progress_.step);
    progress_.seconds += seconds_since(since_);
    since_ = Clock::now();
  }

  void save() {
    collect();
    check_finite();
    checkpoints_.save(progress_, trainer_);
    since_ = Clock::now();  // saving is no training
  }

  // Looks at everything that a checkpoint holds: not at every step, since that would wait for the device.
  void check_finite() {
    if (const auto found = trainer_.first_not_finite()) throw_not_finite(*found);
  }

  [[noreturn]] void throw_not_finite(const std::string& found) const {
    throw Error(fmt::format("after step {} {}: use a smaller --lr or --clip-norm{}", progress_.step, found,
                            checkpoints_.how_to_go_back()));
  }

  void check_lockstep() {
    std::vector<std::vector<Tensor>> parameters;
    std::vector<std::string> names;
    for (const auto& replica : trainer_.replicas()) parameters.push_back(replica->parameters());
    for (const nn::Parameter& parameter : model().named_parameters()) names.push_back(parameter.name);
    if (const auto difference = parallel::first_difference(parameters, names))
      throw Error(
          fmt::format("the replicas are out of lockstep after step {}: {}", progress_.step, *difference));
  }

  const Options& options_;
  const Settings& settings_;
  ResidentData data_;
  std::vector<data::Batch> steps_;  // the rows of each
  parallel::Trainer trainer_;
  Checkpointing& checkpoints_;
  TrainingProgress progress_;
  Clock::time_point since_;  // when progress_.seconds was brought up to date
};

std::string sha256_of(const data::FashionMnist& images) {
  Sha256 digest;
  for (const data::ImageData* part : {&images.train, &images.test}) {
    digest.update(std::as_bytes(std::span(part->images)));
    digest.update(std::as_bytes(std::span(part->labels)));
  }
  return digest.hex();
}

RunIdentity identity(const Options& options, const Model& model, const data::FashionMnist& images,
                     const std::string& sha256, const std::vector<Device>& devices) {
  RunIdentity identity{.model = model.description,
                       .options = run_options(options),
                       .machine = {{"--devices", fmt::format("{}", options.devices)},
                                   {"--allreduce", options.allreduce},
                                   {"--math", options.math},
                                   {"the machine", device_summary({devices[0]})}}};
  identity.options["the data set"] =
      fmt::format("{} and {} images, sha256 {:.16}", images.train.rows, images.test.rows, sha256);
  return identity;
}

Totals totals_of(const TrainingProgress& progress, const std::vector<Device>& devices,
                 const nn::Module& model) {
  Totals totals;
  totals.epochs = progress.epoch;
  totals.steps = progress.step;
  totals.images = progress.images;
  double allreduce_seconds = 0;
  for (const EpochResult& result : progress.results) {
    totals.seconds += result.seconds;
    allreduce_seconds += result.allreduce_share * result.seconds;
    totals.test_accuracy = result.test_accuracy;
  }
  totals.images_per_second = static_cast<double>(totals.images) / totals.seconds;
  totals.allreduce_share = allreduce_seconds / totals.seconds;
  for (const Device& device : devices)
    totals.peak_memory_bytes =
        std::max(totals.peak_memory_bytes, static_cast<int64_t>(device.pool().statistics().peak));
  totals.weights_sha256 = weights_sha256(model.parameters());
  return totals;
}

}  // namespace

int train(const Options& options, const Model& model) {
  const Settings settings = validate(options);
  const std::vector<Device> devices = make_devices(options.devices);
  for (const Device& device : devices) {
    device.use_math(settings.math);
    device.use_precision(settings.precision);
  }
  const std::filesystem::path folder = data::find_fashion_mnist(options.data_dir);
  const data::FashionMnist images = data::load_fashion_mnist(
      folder, options.limit > 0 ? std::optional<int64_t>(options.limit) : std::nullopt);
  if (options.batch_size > images.train.rows)
    throw Error(fmt::format("--batch-size is {}, but there are {} training images: use at most that",
                            options.batch_size, images.train.rows));
  if (const auto batches = static_cast<int64_t>(data::batches(images.train.rows, options.batch_size).size());
      options.accumulate > batches)
    throw Error(fmt::format("--accumulate is {}, but there are {} batches of {} images: use at most that",
                            options.accumulate, batches, options.batch_size));
  check_batches(data::batches(images.train.rows, options.batch_size), devices, settings.statistics,
                model.make, images.train.height, images.train.width);
  const bool compared = !options.checkpoint.empty() || !options.json.empty();
  const std::string sha256 = compared ? sha256_of(images) : "";
  Checkpointing checkpoints(options, identity(options, model, images, sha256, devices));
  Report report(options.json, options.quiet);

  catch_interrupts(fmt::format(
      "stopping after this step; {}; Ctrl-C again ends at once",
      options.checkpoint.empty() ? "nothing is saved without --checkpoint" : "a checkpoint will be written"));
  Run run(options, settings, devices, ResidentData(images, devices), model.make, checkpoints);
  if (!options.quiet) {
    fmt::print("{}\n", device_summary(devices));
    for (const std::string& note : peer_notes(devices)) fmt::print("{}\n", note);
    if (settings.precision != kernels::Precision::fp32 || settings.reduce_in != DType::float32)
      fmt::print("precision: products in {}, gradients summed over the devices in {}\n", options.precision,
                 options.reduce_in);
    fmt::print("data: {} training and {} test images from {}\n", images.train.rows, images.test.rows,
               folder.string());
    print_model(title(model.description), run.model());
    if (options.paths)
      print_paths(run.model(), std::max<int64_t>(1, options.batch_size / options.devices),
                  images.train.height, images.train.width, devices[0]);
    fmt::print("{}\n", describe_rate(settings, run.steps_an_epoch()));
    if (options.check_lockstep) fmt::print("comparing all replicas after every step\n");
    if (options.check_allreduce) fmt::print("comparing every allreduce with the sum on the host\n");
    flush_output();  // a full disk is told before the first epoch
  }

  report.run({.model = model.description,
              .options = all_options(options),
              .devices = device_summary(devices),
              .parameters = run.model().parameter_count(),
              .data_folder = folder.string(),
              .data_sha256 = sha256,
              .train_images = images.train.rows,
              .test_images = images.test.rows});
  run.resume();
  for (const EpochResult& result : run.progress().results) report.epoch(result);
  while (run.progress().epoch < options.epochs) {
    if (!run.epoch()) {
      print_notice(fmt::format("interrupted after step {} (epoch {}){}", run.progress().step,
                               run.progress().epoch + 1, checkpoints.how_to_go_on()));
      return kExitInterrupted;
    }
    report.epoch(run.progress().results.back());
  }
  report.totals(totals_of(run.progress(), devices, run.model()));
  return 0;
}

}  // namespace lockstep::apps
