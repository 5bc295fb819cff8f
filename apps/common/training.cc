#include "apps/common/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "apps/common/interrupt.h"
#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "core/peer.h"
#include "core/pool.h"
#include "core/sha256.h"
#include "nn/data/fashion_mnist.h"
#include "nn/data/shuffle.h"
#include "nn/sgd.h"
#include "parallel/replicas.h"
#include "parallel/trainer.h"

namespace lockstep::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTestBatch = 1000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void print_model(const std::string& name, const nn::Module& model) {
  fmt::print("{}: {} parameters\n", name, model.parameter_count());
  for (const auto& [child, layer] : model.children())
    fmt::print("  {:<10} {:<28} {:>10}\n", child, layer->describe(), layer->parameter_count());
}

// The data set on every device, training and test.
struct ResidentData {
  std::vector<data::DeviceData> train, test;
  int64_t train_rows, test_rows;
};

ResidentData upload(const data::FashionMnist& images, const std::vector<Device>& devices) {
  const data::Normalisation normalisation{data::kFashionMnistMean, data::kFashionMnistStddev};
  ResidentData resident{{}, {}, images.train.rows, images.test.rows};
  std::vector<int32_t> in_order(static_cast<size_t>(images.test.rows));
  std::iota(in_order.begin(), in_order.end(), 0);
  for (const Device& device : devices) {
    const auto put = [&](const data::ImageData& part) {
      return data::DeviceData(part.images, part.labels, part.height, part.width, normalisation, device);
    };
    resident.train.push_back(put(images.train));
    resident.test.push_back(put(images.test));
    resident.test.back().set_order(in_order);
  }
  return resident;
}

// One run: what an epoch needs to know of it.
class Run {
 public:
  Run(const Options& options, const Settings& settings, const std::vector<Device>& devices, ResidentData data,
      const MakeModel& make_model)
      : options_(options),
        settings_(settings),
        devices_(devices),
        data_(std::move(data)),
        batches_(data::batches(data_.train_rows, options.batch_size)),
        trainer_(make_replicas(make_model), devices,
                 {.make_optimizer =
                      [&settings](std::vector<Tensor> parameters) {
                        return std::make_unique<nn::Sgd>(std::move(parameters), settings.sgd);
                      },
                  .algorithm = settings.allreduce}) {}

  const nn::Module& model() const { return *trainer_.replicas()[0]; }
  int64_t steps() const { return step_; }
  int64_t images() const { return images_; }

  // Trains one epoch, counted from 0, and evaluates. False where Ctrl-C ended it.
  bool epoch(int64_t epoch, EpochResult& result) {
    const std::vector<int32_t> order =
        data::permutation(data_.train_rows, options_.seed, static_cast<uint64_t>(epoch));
    for (data::DeviceData& data : data_.train) data.set_order(order);
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
    const int64_t right = parallel::count_correct(trainer_.net(), data_.test, data_.test_rows, kTestBatch);
    result.test_accuracy = static_cast<double>(right) / static_cast<double>(data_.test_rows);
    return true;
  }

 private:
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

  std::vector<std::shared_ptr<nn::Module>> make_replicas(const MakeModel& make_model) {
    std::vector<std::shared_ptr<nn::Module>> replicas;
    for (const Device& device : devices_) replicas.push_back(make_model(device));
    nn::initialise(*replicas[0], settings_.init, options_.seed);
    return replicas;
  }

  void step(const data::Batch& rows, int64_t index) {
    const auto steps_an_epoch = static_cast<int64_t>(batches_.size());
    const double factor =
        nn::schedule_factor(settings_.schedule, index, options_.epochs * steps_an_epoch, steps_an_epoch);
    std::vector<data::LabelledBatch> shards;
    int64_t begin = rows.begin;
    const std::vector<int64_t> sizes =
        parallel::split_sizes(rows.end - rows.begin, static_cast<int>(devices_.size()));
    for (size_t r = 0; r < devices_.size(); ++r) {
      shards.push_back(data_.train[r].batch(begin, sizes[r]));
      begin += sizes[r];
    }
    trainer_.step(shards, static_cast<float>(options_.lr * factor));
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
  const std::vector<Device>& devices_;
  ResidentData data_;
  std::vector<data::Batch> batches_;
  parallel::Trainer trainer_;
  int64_t step_ = 0, images_ = 0;
};

}  // namespace

int train(const Options& options, const MakeModel& make_model) {
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
  Run run(options, settings, devices, upload(images, devices), make_model);
  if (!options.quiet) {
    fmt::print("{}\n", device_summary(devices));
    for (const std::string& note : peer_notes(devices)) fmt::print("{}\n", note);
    fmt::print("data: {} training and {} test images from {}\n", images.train.rows, images.test.rows,
               folder.string());
    print_model(options.model, run.model());
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

int run(const char* program, const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 1;
  }
}

}  // namespace lockstep::apps
