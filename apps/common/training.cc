#include "apps/common/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "apps/common/interrupt.h"
#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/common/resident_data.h"
#include "apps/common/settings.h"
#include "core/peer.h"
#include "core/pool.h"
#include "core/sha256.h"
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
  for (const auto& [child, layer] : model.children())
    fmt::print("  {:<{}} {:<{}} {:>10}\n", child, names, layer->describe(), layers, layer->parameter_count());
}

// What was seen since the epoch began.
struct Sums {
  double loss = 0, allreduce_seconds = 0;
  int64_t steps = 0, rows = 0, correct = 0;

  double mean_loss() const { return steps > 0 ? loss / static_cast<double>(steps) : 0; }
  // `steps_so_far`: of the whole run, the report's last one included.
  void add(const parallel::Trainer::Report& report, int64_t steps_so_far) {
    const auto count = static_cast<int64_t>(report.losses.size());
    for (int64_t i = 0; i < count; ++i) {
      const double value = report.losses[static_cast<size_t>(i)];
      if (!std::isfinite(value))
        throw Error(fmt::format("the loss became {} at step {}: use a smaller --lr, or another --init",
                                std::isnan(value) ? "NaN" : "infinite", steps_so_far - count + i + 1));
      loss += value;
    }
    steps += count;
    rows += report.rows;
    correct += report.correct;
    allreduce_seconds += report.allreduce_seconds;
  }
};

// One run: what an epoch needs to know of it.
class Run {
 public:
  Run(const Options& options, const Settings& settings, const std::vector<Device>& devices, ResidentData data,
      const parallel::MakeModule& make_model)
      : options_(options),
        settings_(settings),
        data_(std::move(data)),
        batches_(data::batches(data_.train_rows(), options.batch_size)),
        trainer_(make_replicas(make_model, devices), devices,
                 {.make_optimizer = settings.make_optimizer,
                  .algorithm = settings.allreduce,
                  .label_smoothing = static_cast<float>(options.label_smoothing),
                  .max_gradient_norm = static_cast<float>(options.clip_norm),
                  .statistics = settings.statistics}) {}

  const nn::Module& model() const { return *trainer_.replicas()[0]; }
  int64_t steps() const { return step_; }
  int64_t images() const { return images_; }

  // Trains one epoch, counted from 0, and evaluates. False where Ctrl-C ended it.
  bool epoch(int64_t epoch, EpochResult& result) {
    data_.shuffle(options_.seed, epoch);
    const auto steps = static_cast<int64_t>(batches_.size());
    const Clock::time_point start = Clock::now();
    Sums sums;
    {
      Progress progress(fmt::format("epoch {}/{}", epoch + 1, options_.epochs), steps, options_.quiet);
      for (int64_t i = 0; i < steps; ++i) {
        if (interrupted()) {
          trainer_.report();  // the steps that are enqueued end first
          return false;
        }
        step(batches_[static_cast<size_t>(i)], epoch * steps + i);
        if (options_.check_lockstep) check_lockstep();
        if (progress.due()) {
          sums.add(trainer_.report(), step_);
          progress.show(i + 1, static_cast<double>(sums.rows) / seconds_since(start), sums.mean_loss());
        }
      }
      sums.add(trainer_.report(), step_);
    }
    result.epoch = epoch + 1;
    result.seconds = seconds_since(start);
    result.train_loss = sums.mean_loss();
    result.train_accuracy = static_cast<double>(sums.correct) / static_cast<double>(sums.rows);
    result.images_per_second = static_cast<double>(sums.rows) / result.seconds;
    result.allreduce_share = sums.allreduce_seconds / result.seconds;
    trainer_.net().combine_buffers();
    result.test_accuracy = data_.test_accuracy(trainer_.net());
    return true;
  }

 private:
  std::vector<std::shared_ptr<nn::Module>> make_replicas(const parallel::MakeModule& make_model,
                                                         const std::vector<Device>& devices) {
    std::vector<std::shared_ptr<nn::Module>> replicas;
    for (const Device& device : devices) replicas.push_back(make_model(device));
    if (options_.sync_batch_norm && replicas[0]->named_buffers().empty())
      throw Error("--sync-batch-norm: this model has no batch norm");
    nn::initialise(*replicas[0], settings_.init, options_.seed);
    return replicas;
  }

  void step(const data::Batch& rows, int64_t index) {
    const double rate = rate_at(settings_, index, static_cast<int64_t>(batches_.size()));
    trainer_.step(data_.shards(rows, settings_.augmentation), static_cast<float>(rate));
    ++step_;
    images_ += rows.end - rows.begin;
  }

  void check_lockstep() {
    std::vector<std::vector<Tensor>> parameters;
    std::vector<std::string> names;
    for (const auto& replica : trainer_.replicas()) parameters.push_back(replica->parameters());
    for (const nn::Parameter& parameter : model().named_parameters()) names.push_back(parameter.name);
    if (const auto difference = parallel::first_difference(parameters, names))
      throw Error(fmt::format("the replicas are out of lockstep after step {}: {}", step_, *difference));
  }

  const Options& options_;
  const Settings& settings_;
  ResidentData data_;
  std::vector<data::Batch> batches_;
  parallel::Trainer trainer_;
  int64_t step_ = 0, images_ = 0;
};

}  // namespace

int train(const Options& options, const Model& model) {
  const Settings settings = validate(options);
  const std::vector<Device> devices = make_devices(options.devices);
  for (const Device& device : devices) device.use_math(settings.math);
  const std::filesystem::path folder = data::find_fashion_mnist(options.data_dir);
  const data::FashionMnist images = data::load_fashion_mnist(
      folder, options.limit > 0 ? std::optional<int64_t>(options.limit) : std::nullopt);
  if (options.batch_size > images.train.rows)
    throw Error(fmt::format("--batch-size is {}, but there are {} training images: use at most that",
                            options.batch_size, images.train.rows));
  Report report(options.json, options.quiet);

  catch_interrupts();
  Run run(options, settings, devices, ResidentData(images, devices), model.make);
  if (!options.quiet) {
    fmt::print("{}\n", device_summary(devices));
    for (const std::string& note : peer_notes(devices)) fmt::print("{}\n", note);
    fmt::print("data: {} training and {} test images from {}\n", images.train.rows, images.test.rows,
               folder.string());
    print_model(title(model.description), run.model());
    if (options.check_lockstep) fmt::print("comparing all replicas after every step\n");
  }

  Totals totals;
  double allreduce_seconds = 0;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    EpochResult result;
    if (!run.epoch(epoch, result)) {
      fmt::print(stderr, "interrupted after step {} (epoch {})\n", run.steps(), epoch + 1);
      return kExitInterrupted;
    }
    report.epoch(result);
    totals.seconds += result.seconds;
    totals.test_accuracy = result.test_accuracy;
    allreduce_seconds += result.allreduce_share * result.seconds;
  }
  totals.epochs = options.epochs;
  totals.steps = run.steps();
  totals.images = run.images();
  totals.images_per_second = static_cast<double>(totals.images) / totals.seconds;
  totals.allreduce_share = allreduce_seconds / totals.seconds;
  for (const Device& device : devices)
    totals.peak_memory_bytes =
        std::max(totals.peak_memory_bytes, static_cast<int64_t>(device.pool().statistics().peak));
  totals.weights_sha256 = weights_sha256(run.model().parameters());
  report.totals(totals);
  return 0;
}

}  // namespace lockstep::apps
