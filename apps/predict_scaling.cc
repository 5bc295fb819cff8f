// Predicts how a training step scales over devices: what each allreduce takes on a network, and how much of
// it hides behind backward.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/common/command_line.h"
#include "apps/common/output.h"
#include "apps/scaling/plot.h"
#include "apps/scaling/step.h"
#include "core/printable.h"
#include "nn/io/replace_file.h"
#include "parallel/collective/cost.h"

using namespace lockstep;

namespace {

constexpr const char* kRings = "rings";
constexpr const char* kHub = "hub";
constexpr int kLayers = 16;  // of --parameters

struct Options {
  std::string model = "resnet18", topology, algorithm = "all", hub, plot, json;
  int devices = 0;
  int64_t parameters = 0;
  double compute_ms = 50, bucket_mb = 25, first_bucket_mb = 1, gigabytes = 25, alpha_us = 10;
  bool strong = false, weak = false;
};

// One line of the results.
struct Row {
  std::string algorithm;
  int devices;
  double allreduce;  // seconds, of all gradients at once
  apps::StepTime step;
  double speed_up;
  double speed_up_without;  // overlap
};

class Predictor {
 public:
  explicit Predictor(const Options& options)
      : options_(options),
        network_(options.topology.empty() ? collective::Network::flat(defaults())
                                          : collective::Network::read(options.topology, defaults())),
        gradients_(options.parameters > 0 ? apps::even_gradients(options.parameters, kLayers)
                                          : apps::gradients_of_model(options.model)),
        buckets_(apps::buckets_of(gradients_, options.first_bucket_mb * (1 << 20),
                                  options.bucket_mb * (1 << 20))) {
    for (const apps::GradientTensor& gradient : gradients_) count_ += gradient.count;
    if (!options.hub.empty()) hub_ = network_.node_named(options.hub, "--hub");
    devices_ = options.devices > 0        ? options.devices
               : options.topology.empty() ? 8
                                          : network_.devices_per_server();
    network_.check_devices(devices_, "--devices");
    if (network_.topology() && network_.topology()->ranks > 1 && options.algorithm != kHub) try {
        rings_ = disjoint_rings(*network_.topology());
      } catch (const Error&) {  // then there is no such line
        if (options.algorithm == kRings) throw;
      }
  }

  int64_t parameters() const { return count_; }
  const std::vector<apps::GradientBucket>& buckets() const { return buckets_; }
  int devices() const { return devices_; }

  std::vector<std::string> algorithms() const {
    std::vector<std::string> names = collective::algorithm_names();
    if (!rings_.empty()) names.emplace_back(kRings);
    if (hub_) names.emplace_back(kHub);
    if (options_.algorithm == "all") return names;
    if (options_.algorithm == kRings && rings_.empty())
      throw Error("--algorithm rings: they are laid over a matrix of links: give one by --topology");
    if (options_.algorithm == kHub && !hub_) throw Error("--algorithm hub: name its node by --hub");
    if (std::ranges::find(names, options_.algorithm) == names.end())
      throw unknown_name("--algorithm", options_.algorithm, names);
    return {options_.algorithm};
  }

  // Doubled from one to the next; full servers only, when there is more than one.
  std::vector<int> numbers_of_devices() const {
    std::vector<int> numbers;
    const int server = std::min(network_.devices_per_server(), devices_);
    for (int n = 1; n < server; n *= 2) numbers.push_back(n);
    for (int n = server; n < devices_; n *= 2) numbers.push_back(n);
    numbers.push_back(devices_);
    return numbers;
  }

  // None where the algorithm has no plan for so many.
  std::optional<Row> predict(const std::string& algorithm, int devices) {
    if (algorithm == kRings && devices != network_.devices_per_server()) return {};
    if (algorithm == kHub && devices >= collective::kMostRanks) return {};
    const double alone = options_.compute_ms * 1e-3;
    const double compute = options_.strong ? alone / devices : alone;
    const auto seconds = [&](int64_t count) { return allreduce(algorithm, devices, count); };
    const apps::StepTime step = apps::step_time(buckets_, compute, seconds);
    // As much work as one device does in a step, by the time that it takes.
    const double work = options_.strong ? alone : alone * devices;
    return Row{algorithm, devices, seconds(count_), step, work / step.step, work / step.one_by_one};
  }

 private:
  collective::NetworkDefaults defaults() const { return {{options_.gigabytes, 0}, options_.alpha_us}; }

  double allreduce(const std::string& algorithm, int devices, int64_t count) {
    const auto [known, is_new] = known_.try_emplace({algorithm, devices, count});
    if (is_new) known->second = predict_once(algorithm, devices, count);
    return known->second;
  }

  double predict_once(const std::string& algorithm, int devices, int64_t count) const {
    constexpr int kBytes = 4;
    if (devices == 1 && algorithm != kHub) return 0;
    if (algorithm == kRings) return collective::predict(collective::rings(rings_, count), network_, kBytes);
    if (algorithm == kHub) {  // a star whose centre has nothing of its own
      std::vector<int> places{*hub_};
      for (int device = 0; device < devices; ++device) places.push_back(network_.node_of(device));
      return collective::predict(collective::star(devices + 1, count), network_, kBytes, places);
    }
    return collective::predict_allreduce(algorithm, devices, count, network_, kBytes);
  }

  const Options& options_;
  const collective::Network network_;
  const std::vector<apps::GradientTensor> gradients_;
  const std::vector<apps::GradientBucket> buckets_;
  int64_t count_ = 0;
  int devices_ = 0;
  std::optional<int> hub_;
  std::vector<collective::Ring> rings_;
  std::map<std::tuple<std::string, int, int64_t>, double> known_;
};

// "0.051", "5.19", "1234": what a column of 8 holds.
std::string milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return fmt::format("{:.{}f}", ms, ms < 1 ? 3 : ms < 100 ? 2 : ms < 10000 ? 1 : 0);
}

void print_head(const Options& options, const Predictor& predictor) {
  const auto& buckets = predictor.buckets();
  fmt::print("# {}: {} parameters, {:.1f} MB of gradients in {} {}\n",
             options.parameters > 0 ? "gradients" : options.model, predictor.parameters(),
             4e-6 * static_cast<double>(predictor.parameters()), buckets.size(),
             buckets.size() == 1 ? "bucket" : "buckets");
  if (options.strong)
    fmt::print("# strong scaling: {:g} ms of computation a step, shared by all devices\n",
               options.compute_ms);
  else
    fmt::print("# weak scaling: {:g} ms of computation a step on every device\n", options.compute_ms);
  if (options.topology.empty())
    fmt::print("# every device has {:g} GB/s each way to one switch; {:g} us to start a transfer\n",
               options.gigabytes, options.alpha_us);
  else
    fmt::print("# links as in {}\n", printable(options.topology));
}

// Algorithms below each other, numbers of devices beside each other, as many as 80 columns hold.
void print_allreduces(const std::vector<Row>& rows, const std::vector<std::string>& algorithms,
                      const std::vector<int>& numbers) {
  constexpr size_t kInALine = 7;
  std::map<std::pair<std::string, int>, double> at;
  for (const Row& row : rows) at[{row.algorithm, row.devices}] = row.allreduce;
  for (size_t first = 0; first < numbers.size(); first += kInALine) {
    const size_t end = std::min(numbers.size(), first + kInALine);
    fmt::print("\n{:20}", "allreduce ms, for");
    for (size_t n = first; n < end; ++n) fmt::print("{:>8}", numbers[n]);
    fmt::print("\n");
    for (const std::string& algorithm : algorithms) {
      fmt::print("{:20}", algorithm);
      for (size_t n = first; n < end; ++n) {
        const auto found = at.find({algorithm, numbers[n]});
        fmt::print("{:>8}", found == at.end() ? "-" : milliseconds(found->second));
      }
      fmt::print("\n");
    }
  }
}

// The fastest algorithm for each number of devices.
void print_steps(const std::vector<Row>& rows, const std::vector<int>& numbers) {
  fmt::print("\n{:>7} {:18} {:>9} {:>8} {:>8} {:>6} {:>8} {:>8}\n", "", "", "allreduce", "step", "one by", "",
             "", "effi-");
  fmt::print("{:>7} {:18} {:>9} {:>8} {:>8} {:>6} {:>8} {:>8}\n", "devices", "algorithm", "ms", "ms",
             "one, ms", "hidden", "speed-up", "ciency");
  for (const int devices : numbers) {
    const Row* best = nullptr;
    for (const Row& row : rows)
      if (row.devices == devices && (best == nullptr || row.step.step < best->step.step)) best = &row;
    if (best == nullptr) continue;
    const bool alone = best->step.communication == 0;
    fmt::print("{:>7} {:18} {:>9} {:>8} {:>8} {:>6} {:>8.2f} {:>8}\n", devices, alone ? "-" : best->algorithm,
               milliseconds(best->allreduce), milliseconds(best->step.step),
               milliseconds(best->step.one_by_one),
               alone ? "-" : fmt::format("{:.0f} %", 100 * best->step.hidden()), best->speed_up,
               fmt::format("{:.1f} %", 100 * best->speed_up / devices));
  }
}

nlohmann::json json_of(const Row& row, const Options& options) {
  return {{"algorithm", row.algorithm},
          {"devices", row.devices},
          {"scaling", options.strong ? "strong" : "weak"},
          {"allreduce_ms", row.allreduce * 1e3},
          {"compute_ms", row.step.compute * 1e3},
          {"communication_ms", row.step.communication * 1e3},
          {"step_ms", row.step.step * 1e3},
          {"step_one_by_one_ms", row.step.one_by_one * 1e3},
          {"hidden", row.step.hidden()},
          {"speed_up", row.speed_up},
          {"efficiency", row.speed_up / row.devices}};
}

void validate(const Options& options, const CLI::App& app) {
  apps::check_value(
      app.count("--devices") == 0 || (options.devices >= 1 && options.devices <= collective::kMostRanks),
      "--devices", options.devices, "1 to 4096");
  constexpr double kMost = 1e9;
  const auto positive = [](double value) { return value > 0 && value <= kMost; };
  apps::check_value(positive(options.compute_ms), "--compute-ms", options.compute_ms,
                    "more than 0, up to 1e9");
  apps::check_value(positive(options.bucket_mb), "--bucket-mb", options.bucket_mb, "more than 0, up to 1e9");
  apps::check_value(positive(options.gigabytes), "--gbps", options.gigabytes, "more than 0, up to 1e9");
  apps::check_value(options.alpha_us >= 0 && options.alpha_us <= kMost, "--alpha-us", options.alpha_us,
                    "0 to 1e9");
  constexpr int64_t kMostParameters = 1'000'000'000'000;
  apps::check_value(
      app.count("--parameters") == 0 || (options.parameters >= 1 && options.parameters <= kMostParameters),
      "--parameters", static_cast<double>(options.parameters), "1 to 1e12");
  if (app.count("--parameters") > 0 && app.count("--model") > 0)
    throw Error("--parameters, --model: a model has its own number of parameters: leave one out");
  if (options.strong && options.weak) throw Error("--strong, --weak: use one of them");
  if (!options.hub.empty() && options.topology.empty())
    throw Error("--hub: it is a node of a topology: give one by --topology");
  for (const std::string& file : {options.json, options.plot})
    if (!file.empty()) {
      apps::check_can_be_written(file);
      if (!options.topology.empty()) apps::check_other_file(file, options.topology);
    }
}

int predict(const Options& options, const CLI::App& app) {
  validate(options, app);
  Predictor predictor(options);
  const std::vector<std::string> algorithms = predictor.algorithms();
  const std::vector<int> numbers = predictor.numbers_of_devices();
  print_head(options, predictor);
  std::vector<Row> rows;
  for (const std::string& algorithm : algorithms)
    for (const int devices : numbers)
      if (const auto row = predictor.predict(algorithm, devices)) rows.push_back(*row);
  if (algorithms.size() > 1) print_allreduces(rows, algorithms, numbers);
  print_steps(rows, numbers);
  if (!options.json.empty()) {
    std::string lines;
    for (const Row& row : rows) lines += json_of(row, options).dump() + "\n";
    data::replace_file(options.json, lines);
  }
  if (!options.plot.empty()) {
    std::vector<apps::EfficiencyPoint> points;
    for (const Row& row : rows)
      points.push_back(
          {row.algorithm, row.devices, row.speed_up / row.devices, row.speed_up_without / row.devices});
    data::replace_file(
        options.plot,
        apps::efficiency_plot(points, fmt::format("{}, {} scaling, {:g} ms of computation",
                                                  options.parameters > 0 ? "gradients" : options.model,
                                                  options.strong ? "strong" : "weak", options.compute_ms)));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Predicts how a training step scales over many devices, from the plans of the allreduces\n"
      "and a network's latencies and bandwidths. Nothing is measured.",
      "predict_scaling");
  apps::use_help_format(app);
  Options options;
  app.add_option("--devices", options.devices,
                 "Up to so many devices, 4096 at most; else 8, or the topology's.")
      ->default_str("");
  app.add_option("--model", options.model, "The model that is trained: its gradients are reduced.");
  app.add_option("--parameters", options.parameters,
                 "Instead of a model: so many parameters, evenly in 16 layers.")
      ->default_str("");
  app.add_option("--topology", options.topology,
                 "Devices, nodes and links, FILE.json; else all have a link to one switch.");
  app.add_option("--gbps", options.gigabytes, "GB/s each way of a link that says nothing of its own.");
  app.add_option("--alpha-us", options.alpha_us,
                 "Microseconds to start a transfer, where the topology has no start_us.");
  app.add_option(
      "--algorithm", options.algorithm,
      fmt::format("{}; rings, with a topology; or all.", fmt::join(collective::algorithm_names(), ", ")));
  app.add_option("--hub", options.hub, "A star at this node, too, as a parameter server: \"cpu\".");
  app.add_flag("--weak", options.weak, "The batch grows with the devices (the default).");
  app.add_flag("--strong", options.strong, "The devices share the batch of one.");
  app.add_option("--compute-ms", options.compute_ms,
                 "Forward and backward of one device's batch; with --strong, of the whole batch.");
  app.add_option("--bucket-mb", options.bucket_mb,
                 "Gradients are reduced in buckets of so many MB, after one of 1.");
  app.add_option("--plot", options.plot,
                 "Draw efficiency over devices to this SVG file, a line per algorithm.");
  app.add_option("--json", options.json, "Write a line of JSON per result to this file.");
  app.footer(
      "\"step\" has each bucket reduced as soon as backward has filled it, \"one by one\" all of\n"
      "them after backward. docs/scaling.md tells the model, docs/allreduce.md how a topology is\n"
      "written.\n"
      "\n"
      "Examples:\n"
      "  ./lab predict_scaling --devices 4096 --model resnet18\n"
      "  ./lab predict_scaling --devices 64 --model lenet --strong --compute-ms 12.8\n"
      "  ./lab predict_scaling --topology docs/topologies/four_gpus.json --hub cpu \\\n"
      "      --parameters 40000000 --plot scaling.svg");
  if (const int exit_code = apps::parse(app, argc, argv); exit_code >= 0) return exit_code;
  return apps::report_errors("predict_scaling", [&] { return predict(options, app); });
}
