// Proves a collective's plan that somebody wrote by hand, or in another language: a JSON file.
#include <fmt/format.h>

#include "apps/common/command_line.h"
#include "core/printable.h"
#include "parallel/collective/checker.h"
#include "parallel/collective/plan_file.h"

using namespace lockstep;

namespace {

std::string what_it_does(const collective::Plan& plan) {
  using collective::Goal;
  switch (plan.goal) {
    case Goal::allreduce:
      return "every rank ends with the sum over all ranks";
    case Goal::reduce_scatter:
      return "every rank ends with the sum over all ranks, in its own slice";
    case Goal::all_gather:
      return "every rank ends with every rank's slice";
    case Goal::broadcast:
      return fmt::format("every rank ends with what rank {} held", plan.root);
    case Goal::reduce:
      return fmt::format("rank {} ends with the sum over all ranks", plan.root);
    case Goal::all_to_all:
      return "every rank ends with what each other one had for it";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Proves the plan of a collective, such as an allreduce, that somebody wrote by\n"
      "hand or in another language, without running it: each contribution arrives\n"
      "exactly once, wherever it has to, and nothing is read before it is ready or\n"
      "overwritten while in use. Else it says which transfer is wrong, and why.",
      "check_plan");
  apps::use_help_format(app);
  std::string file;
  app.add_option("FILE", file, "The plan, in JSON: docs/allreduce.md has the format.")->required();
  app.footer(
      "Example, with a plan to begin with:\n"
      "  ./lab draw ring --ranks 4 --json mine.json\n"
      "  ./lab check_plan mine.json");
  if (const int exit_code = apps::parse(app, argc, argv); exit_code >= 0) return exit_code;

  return apps::report_errors("check_plan", [&] {
    const collective::Plan plan = collective::read_plan(file);
    if (const auto violation = collective::find_violation(plan))
      throw Error(fmt::format("{}: {}", printable(file), violation->what));
    const collective::Cost cost = collective::cost_of(plan);
    fmt::print("{}: right: {}\n", printable(file), what_it_does(plan));
    fmt::print(
        "{} of {} elements over {} ranks: {} transfers in {} rounds; a rank sends {} elements at most, "
        "and receives {}\n",
        name_of(plan.goal), plan.count, plan.ranks, plan.transfers.size(), cost.rounds, cost.most_sent,
        cost.most_received);
    return 0;
  });
}
