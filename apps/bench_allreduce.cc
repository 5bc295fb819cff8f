// Times allreduces on this machine's devices and checks every result, in the manner of nccl-tests.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/allreduce/measure.h"
#include "apps/allreduce/plot.h"
#include "apps/allreduce/sizes.h"
#include "apps/common/command_line.h"
#include "apps/common/output.h"
#include "core/device.h"
#include "core/peer.h"
#include "nn/io/replace_file.h"
#include "parallel/collective/cost.h"

using namespace lockstep;

namespace {

constexpr int kRounds = 3;  // each case is timed so often, in turns with the others

struct Options {
  std::string begin = "4K", end = "16M", algorithm = "all", type = "float", operation = "sum", json, plot,
              topology;
  int factor = 4, devices = 2, warm_up = 5, iterations = 20, aggregate = 1, check = 1;
  bool graph = false;
};

const std::vector<std::pair<std::string, DType>> kTypes{{"float", DType::float32},
                                                        {"bfloat16", DType::bfloat16},
                                                        {"half", DType::float16},
                                                        {"int32", DType::int32}};
const std::vector<std::pair<std::string, collective::Reduction>> kOperations{
    {"sum", collective::Reduction::sum},
    {"mean", collective::Reduction::mean},
    {"max", collective::Reduction::max},
    {"min", collective::Reduction::min}};

// One line of the results.
struct Row {
  std::string algorithm, type, operation;
  int64_t bytes, count;
  apps::AllreduceTime out_of_place, in_place;
  double predicted = 0;  // microseconds; 0 without a topology
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// All algorithms at one size, in turns: what slows the machine for a while slows all of them.
std::vector<Row> measure_in_turns(const std::vector<std::string>& algorithms, const apps::AllreduceCase& of,
                                  const Row& labels, const apps::AllreduceRuns& runs) {
  std::vector<Row> rows;
  std::vector<std::unique_ptr<apps::AllreduceBench>> benches;
  for (const std::string& algorithm : algorithms) {
    apps::AllreduceCase one = of;
    one.algorithm = algorithm;
    benches.push_back(std::make_unique<apps::AllreduceBench>(one, runs));
    rows.push_back(labels);
    rows.back().algorithm = algorithm;
  }
  std::vector<std::vector<double>> out(benches.size()), in(benches.size());
  for (int round = 0; round < kRounds; ++round)
    for (size_t b = 0; b < benches.size(); ++b) {
      for (auto [result, times, run] :
           {std::tuple(&rows[b].out_of_place, &out[b], &apps::AllreduceBench::out_of_place),
            std::tuple(&rows[b].in_place, &in[b], &apps::AllreduceBench::in_place)}) {
        const apps::AllreduceTime once = (*benches[b].*run)();
        times->push_back(once.microseconds);
        result->wrong = once.wrong < 0 ? -1 : result->wrong + once.wrong;
        result->microseconds = median(*times);
      }
    }
  return rows;
}

std::string columns(const Row& row, const apps::AllreduceTime& time, int ranks) {
  return fmt::format(" {:>8.{}f} {:>6.2f} {:>6.2f} {:>3}", time.microseconds, time.microseconds < 1e4 ? 1 : 0,
                     apps::algorithm_bandwidth(row.bytes, time.microseconds),
                     apps::bus_bandwidth(row.bytes, time.microseconds, ranks),
                     time.wrong < 0 ? "N/A" : std::to_string(time.wrong));
}

// nccl-tests' table, for one algorithm.
void print_header(const std::string& algorithm) {
  fmt::print("# {}\n", algorithm);
  fmt::print("#{:25}{:^27}{:^27}\n", "", "out of place", "in place");
  fmt::print("#{:>4} {:>9} {:>5} {:>4}", "size", "count", "type", "op");
  for (int i = 0; i < 2; ++i) fmt::print(" {:>8} {:>6} {:>6} {:>3}", "us", "algbw", "busbw", "bad");
  fmt::print("\n");
}

void print_row(const Row& row, int ranks) {
  fmt::print("{:>5} {:>9} {:>5} {:>4}{}{}\n", apps::size_text(row.bytes), row.count,
             row.type == "bfloat16" ? "bf16" : row.type, row.operation, columns(row, row.out_of_place, ranks),
             columns(row, row.in_place, ranks));
}

// Algorithms below each other, sizes beside each other, as many as 80 columns hold.
void print_side_by_side(const std::vector<Row>& rows, const std::string& title,
                        double (*value)(const Row&, int ranks), int digits, int ranks) {
  constexpr size_t kSizesInALine = 6;
  std::vector<int64_t> sizes;
  std::vector<std::string> algorithms;
  std::map<std::pair<std::string, int64_t>, const Row*> at;
  for (const Row& row : rows) {
    if (std::find(sizes.begin(), sizes.end(), row.bytes) == sizes.end()) sizes.push_back(row.bytes);
    if (std::find(algorithms.begin(), algorithms.end(), row.algorithm) == algorithms.end())
      algorithms.push_back(row.algorithm);
    at[{row.algorithm, row.bytes}] = &row;
  }
  for (size_t first = 0; first < sizes.size(); first += kSizesInALine) {
    const size_t end = std::min(sizes.size(), first + kSizesInALine);
    fmt::print("# {:18}", title);
    for (size_t s = first; s < end; ++s) fmt::print("{:>10}", apps::size_text(sizes[s]));
    fmt::print("\n");
    for (const std::string& algorithm : algorithms) {
      fmt::print("{:20}", algorithm);
      for (size_t s = first; s < end; ++s)
        fmt::print("{:>10.{}f}", value(*at.at({algorithm, sizes[s]}), ranks), digits);
      fmt::print("\n");
    }
  }
}

nlohmann::json json_of(const Row& row, int ranks) {
  nlohmann::json line{{"algorithm", row.algorithm}, {"ranks", ranks},   {"bytes", row.bytes},
                      {"count", row.count},         {"type", row.type}, {"operation", row.operation}};
  for (const auto& [name, time] :
       {std::pair("out_of_place", row.out_of_place), std::pair("in_place", row.in_place)})
    line[name] = {{"microseconds", time.microseconds},
                  {"algbw", apps::algorithm_bandwidth(row.bytes, time.microseconds)},
                  {"busbw", apps::bus_bandwidth(row.bytes, time.microseconds, ranks)},
                  {"wrong", time.wrong < 0 ? nlohmann::json() : nlohmann::json(time.wrong)}};
  if (row.predicted > 0) line["predicted_microseconds"] = row.predicted;
  return line;
}

void predict(std::vector<Row>& rows, const collective::Network& network, int devices) {
  std::vector<double> errors;  // of the predicted time, in percent
  for (Row& row : rows) {
    if (row.count == 0) continue;
    const double bytes_per_element = static_cast<double>(row.bytes) / static_cast<double>(row.count);
    row.predicted =
        1e6 * collective::predict_allreduce(row.algorithm, devices, row.count, network, bytes_per_element);
    errors.push_back(100 * std::abs(row.predicted / row.in_place.microseconds - 1));
  }
  if (!errors.empty())
    fmt::print("# predicted from the topology: off by {:.0f} % in the median, {:.0f} % at most\n",
               median(errors), *std::max_element(errors.begin(), errors.end()));
}

template <typename T>
std::vector<std::pair<std::string, T>> chosen(const std::string& option, const std::string& text,
                                              const std::vector<std::pair<std::string, T>>& choices) {
  if (text == "all") return choices;
  return {{text, apps::choose(option, text, choices)}};
}

std::vector<std::string> chosen_algorithms(const std::string& text) {
  if (text == "all") return collective::algorithm_names();
  collective::algorithm_named(text, "--algorithm");
  return {text};
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("-b,--begin", options.begin, "Bytes per device to begin with: 4096, 4K, 1M.");
  app.add_option("-e,--end", options.end, "Bytes per device to end with.");
  app.add_option("-f,--factor", options.factor, "Each size is so many times the one before.");
  app.add_option("-g,--devices", options.devices, "On this many devices; several may share a physical one.");
  app.add_option("-w,--warm-up", options.warm_up, "Operations that are not timed, before those that are.");
  app.add_option("-n,--iterations", options.iterations, "Operations that are timed, one after the other.");
  app.add_option("-m,--aggregate", options.aggregate, "Operations per iteration.");
  app.add_option("-d,--type", options.type, "float, bfloat16, half, int32 or all.");
  app.add_option("-o,--operation", options.operation, "sum, mean, max, min or all.");
  app.add_option("-c,--check", options.check, "1: compare every element with the exact result. 0: do not.");
  app.add_option("--algorithm", options.algorithm,
                 fmt::format("{}; or all, side by side.", fmt::join(collective::algorithm_names(), ", ")));
  app.add_flag("-G,--graph", options.graph, "Time a captured CUDA graph instead of calls.");
  app.add_option("--json", options.json, "Write a line of JSON per result to this file.");
  app.add_option("--topology", options.topology,
                 "Predict the times from this file of links, too; dotted in the plot.");
  app.add_option("--plot", options.plot, "Draw bandwidth over size to this SVG file, a line per algorithm.");
  app.footer(
      "Times are medians of three rounds in which all algorithms take turns. algbw is bytes over\n"
      "time; busbw is algbw x 2(k-1)/k, what the links of k devices must carry at least.\n"
      "\n"
      "Examples:\n"
      "  ./lab bench_allreduce -g 4 --algorithm all --plot out.svg\n"
      "  ./lab bench_allreduce -b 8 -e 64M -f 8 --algorithm ring --graph");
}

void validate(const Options& options) {
  apps::check_value(options.factor >= 2 && options.factor <= 1024, "--factor", options.factor, "2 to 1024");
  apps::check_value(options.devices >= 1 && options.devices <= 64, "--devices", options.devices, "1 to 64");
  apps::check_value(options.warm_up >= 0, "--warm-up", options.warm_up, "0 or more");
  apps::check_value(options.iterations >= 1, "--iterations", options.iterations, "1 or more");
  apps::check_value(options.aggregate >= 1, "--aggregate", options.aggregate, "1 or more");
  apps::check_value(options.check == 0 || options.check == 1, "--check", options.check, "0 or 1");
  for (const std::string& file : {options.json, options.plot})
    if (!file.empty()) {
      apps::check_can_be_written(file);
      if (!options.topology.empty()) apps::check_other_file(file, options.topology);
    }
}

int bench(const Options& options) {
  validate(options);
  const std::vector<std::string> algorithms = chosen_algorithms(options.algorithm);
  const std::vector<int64_t> sizes = apps::sizes_between(options.begin, options.end, options.factor);
  std::optional<collective::Network> network;
  if (!options.topology.empty()) {
    network = collective::Network::read(options.topology, {});
    network->check_devices(options.devices, "--devices");
  }
  const std::vector<Device> devices = make_devices(options.devices);
  fmt::print("# {}\n", device_summary(devices));
  for (const std::string& note : peer_notes(devices)) fmt::print("# {}\n", note);
  const apps::AllreduceRuns runs{options.warm_up, options.iterations, options.aggregate, options.graph,
                                 options.check == 1};
  std::vector<Row> all;
  int64_t wrong = 0;
  for (const auto& [type, dtype] : chosen("--type", options.type, kTypes))
    for (const auto& [operation, reduction] : chosen("--operation", options.operation, kOperations)) {
      if (reduction == collective::Reduction::mean && dtype == DType::int32) {
        if (options.operation != "all" && options.type != "all")
          throw Error("--operation mean --type int32: a mean of integers is no integer: use another type");
        continue;
      }
      if (algorithms.size() == 1) print_header(algorithms[0]);
      std::vector<Row> rows;
      for (const int64_t bytes : sizes) {
        const Row labels{"", type, operation, bytes, bytes / static_cast<int64_t>(size_of(dtype)), {}, {}};
        for (Row& row :
             measure_in_turns(algorithms, {devices, "", dtype, reduction, labels.count}, labels, runs)) {
          if (algorithms.size() == 1) print_row(row, options.devices);
          wrong += std::max<int64_t>(row.in_place.wrong, 0) + std::max<int64_t>(row.out_of_place.wrong, 0);
          rows.push_back(row);
        }
        apps::flush_output();
      }
      if (algorithms.size() > 1) {
        fmt::print("# {} {}, in place\n", type, operation);
        print_side_by_side(
            rows, "microseconds", [](const Row& r, int) { return r.in_place.microseconds; }, 1,
            options.devices);
        print_side_by_side(
            rows, "busbw, GB/s",
            [](const Row& r, int k) { return apps::bus_bandwidth(r.bytes, r.in_place.microseconds, k); }, 2,
            options.devices);
      }
      all.insert(all.end(), rows.begin(), rows.end());
    }
  fmt::print("# wrong elements: {}\n", options.check == 0 ? "not checked"
                                       : wrong == 0       ? "0 OK"
                                                          : std::to_string(wrong));
  if (network) predict(all, *network, options.devices);
  if (!options.json.empty()) {
    std::string lines;
    for (const Row& row : all) lines += json_of(row, options.devices).dump() + "\n";
    data::replace_file(options.json, lines);
  }
  if (!options.plot.empty()) {
    std::vector<apps::BandwidthPoint> points;
    for (const Row& row : all)
      points.push_back(
          {row.algorithm, row.bytes,
           apps::bus_bandwidth(row.bytes, row.in_place.microseconds, options.devices),
           row.predicted > 0 ? apps::bus_bandwidth(row.bytes, row.predicted, options.devices) : 0});
    data::replace_file(options.plot, apps::bandwidth_plot(points, device_summary(devices)));
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Times allreduces on this machine's devices, and checks every element of every result:\n"
      "for each size and algorithm, out of place and in place, in the manner of nccl-tests.",
      "bench_allreduce");
  apps::use_help_format(app);
  Options options;
  add_options(app, options);
  if (const int exit_code = apps::parse(app, argc, argv); exit_code >= 0) return exit_code;
  return apps::report_errors("bench_allreduce", [&] { return bench(options); });
}
