// Fuzz target for the readers of plans and topologies, both of which get every input. CTest runs it through
// driver.cc.
#include <algorithm>

#include "parallel/collective/checker.h"
#include "parallel/collective/network.h"
#include "parallel/collective/plan_file.h"
#include "parallel/collective/topology.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace lockstep::collective;
  const auto file = fuzz::file_of(data, size);
  fuzz::read_or_refuse(file, [](const auto& path) {
    const Plan plan = read_plan(path);
    fuzz::demand(std::ranges::is_sorted(plan.transfers, {}, &Transfer::round), "rounds that rise");
    const Plan again = parse_plan(plan_as_json(plan), "again");
    fuzz::demand(again.transfers == plan.transfers && again.goal == plan.goal && again.root == plan.root,
                 "the same plan again");
    if (plan.ranks > 64) return;  // takes longer than a fuzz run has
    if (const auto violation = find_violation(plan))
      fuzz::demand(violation->transfer < static_cast<int>(plan.transfers.size()), "a transfer of the plan");
  });
  fuzz::read_or_refuse(file, [](const auto& path) {
    const Topology topology = read_topology(path);
    fuzz::demand(topology.ranks == static_cast<int>(topology.links.size()), "a row for each rank");
  });
  fuzz::read_or_refuse(file, [](const auto& path) {
    const Network network = Network::read(path, {});
    const int last = network.devices_per_server() - 1;
    fuzz::demand(last == 0 || !network.path(0, last, false).uses.empty(), "a way between devices");
  });
  return 0;
}
