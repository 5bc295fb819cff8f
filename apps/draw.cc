// Draws an algorithm for several devices: who sends what to whom, round by round.
#include <fmt/format.h>

#include <filesystem>
#include <functional>

#include "apps/common/command_line.h"
#include "apps/common/output.h"
#include "apps/draw/space_time.h"
#include "apps/draw/steps_page.h"
#include "core/printable.h"
#include "nn/io/replace_file.h"
#include "parallel/collective/checker.h"
#include "parallel/collective/plan_file.h"
#include "parallel/collective/topology.h"

using namespace lockstep;

namespace {

constexpr const char* kRings = "rings";

struct Options {
  std::string name, topology, picture, page, json;
  int ranks = 4, chunks = 0;
  int64_t count = 0;
};

std::vector<collective::NamedAlgorithm> all_algorithms() {
  std::vector<collective::NamedAlgorithm> all = collective::algorithms();
  all.insert(all.end(), collective::other_collectives().begin(), collective::other_collectives().end());
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& [name, plan, in_chunks] : all_algorithms()) names.push_back(name);
  names.emplace_back(kRings);
  return names;
}

// The plan for the fewest elements with which no slice is empty.
collective::Plan smallest_plan(const std::function<collective::Plan(int64_t count)>& plan_of, int ranks) {
  const int64_t all = int64_t{64} * ranks * ranks;
  const size_t transfers = plan_of(all).transfers.size();
  for (int64_t count = ranks; count < all; count += ranks)
    if (collective::Plan plan = plan_of(count); plan.transfers.size() == transfers) return plan;
  return plan_of(all);
}

bool is_file(const std::string& name) {
  return name.find_first_of("./") != std::string::npos;
}

collective::Plan plan_of(const Options& options, const CLI::App& app) {
  const auto given = [&app](const char* option) { return app.count(option) > 0; };
  if (is_file(options.name)) {
    for (const char* option : {"--ranks", "--count", "--chunks", "--topology"})
      if (given(option)) throw Error(fmt::format("{}: a plan in a file has its own: leave it out", option));
    return collective::read_plan(options.name);
  }
  apps::check_value(!given("--count") || options.count > 0, "--count", static_cast<double>(options.count),
                    "1 or more");
  if (options.name == kRings) {
    for (const char* option : {"--ranks", "--chunks"})
      if (given(option))
        throw Error(fmt::format("{}: rings are as the topology has them: leave it out", option));
    const collective::Topology topology =
        options.topology.empty() ? collective::this_machine() : collective::read_topology(options.topology);
    if (topology.ranks > apps::kMostRanksDrawn)
      throw Error(fmt::format("rings: {} ranks are too many for a picture: there may be {}", topology.ranks,
                              apps::kMostRanksDrawn));
    const std::vector<collective::Ring> rings = disjoint_rings(topology);
    const auto with_count = [&](int64_t count) { return collective::rings(rings, count); };
    return options.count > 0 ? with_count(options.count) : smallest_plan(with_count, topology.ranks);
  }
  if (given("--topology")) throw Error("--topology: only 'rings' are laid over one");
  apps::check_value(options.ranks >= 1 && options.ranks <= apps::kMostRanksDrawn, "--ranks", options.ranks,
                    "1 to 64");
  apps::check_value(!given("--chunks") || (options.chunks >= 1 && options.chunks <= 64), "--chunks",
                    options.chunks, "1 to 64");
  for (const collective::NamedAlgorithm& algorithm : all_algorithms()) {
    if (algorithm.name != options.name) continue;
    if (given("--chunks") && algorithm.in_chunks == nullptr)
      throw Error(fmt::format("--chunks: {} does not work in chunks: leave it out", algorithm.name));
    if (options.count > 0 && !given("--chunks")) return algorithm.plan(options.ranks, options.count);
    const auto with_count = [&](int64_t count) {
      return algorithm.in_chunks != nullptr
                 ? algorithm.in_chunks(options.ranks, count, std::max(1, options.chunks))
                 : algorithm.plan(options.ranks, count);
    };
    return options.count > 0 ? with_count(options.count) : smallest_plan(with_count, options.ranks);
  }
  throw unknown_name("NAME", options.name, names());
}

void write(const std::string& file, const std::string& text) {
  data::replace_file(file, text);
  fmt::print("{}\n", printable(file));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Draws a plan of transfers between devices: ranks side by side, rounds from top\n"
      "to bottom, an arrow for each transfer. What is wrong with it is drawn in red.",
      "draw");
  apps::use_help_format(app);
  Options options;
  app.add_option(
         "NAME", options.name,
         fmt::format("An algorithm ({}), or a file with a plan, FILE.json.", fmt::join(names(), ", ")))
      ->required();
  app.add_option("--ranks", options.ranks, "For so many devices.");
  app.add_option("--count", options.count,
                 "Elements of each device's buffer; else the fewest that show it all.")
      ->default_str("");
  app.add_option("--chunks", options.chunks,
                 "Into how many chunks a tree cuts the buffer; else by the count.")
      ->default_str("");
  app.add_option("--topology", options.topology,
                 "The links that 'rings' are laid over, FILE.json; else this machine's.");
  app.add_option("-o", options.picture, "Write the picture to this SVG file; else to NAME.svg.");
  app.add_option("--animate", options.page,
                 "Write an HTML page, too, in which one steps through the rounds.");
  app.add_option("--json", options.json, "Write the plan itself, too, to change it and draw it again.");
  app.footer(
      "Examples:\n"
      "  ./lab draw ring --ranks 4 --animate ring.html\n"
      "  ./lab draw tree --ranks 7 --chunks 3 -o tree.svg\n"
      "  ./lab draw rings --topology docs/topologies/eight_gpus.json\n"
      "  ./lab draw mine.json");
  if (const int exit_code = apps::parse(app, argc, argv); exit_code >= 0) return exit_code;

  return apps::report_errors("draw", [&] {
    if (options.picture.empty())
      options.picture = std::filesystem::path(options.name).stem().string() + ".svg";
    for (const std::string& file : {options.picture, options.page, options.json})
      if (!file.empty()) apps::check_can_be_written(file);
    if (is_file(options.name))
      for (const std::string& file : {options.picture, options.page, options.json})
        if (!file.empty()) apps::check_other_file(file, options.name);
    const collective::Plan plan = plan_of(options, app);
    const auto violation = collective::find_violation(plan);
    const std::string title =
        fmt::format("{}: {} over {} {}", printable(std::filesystem::path(options.name).stem().string()),
                    name_of(plan.goal), plan.ranks, plan.ranks == 1 ? "rank" : "ranks");
    write(options.picture, apps::space_time_svg(plan, title, violation));
    if (!options.page.empty()) write(options.page, apps::steps_page(plan, title, violation));
    if (!options.json.empty()) write(options.json, plan_as_json(plan));
    if (violation) fmt::print("wrong, and drawn in red: {}\n", violation->what);
    return 0;
  });
}
