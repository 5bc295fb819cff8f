#include "parallel/collective/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/names.h"
#include "kernels/check.h"

namespace lockstep::collective {

const std::vector<NamedAlgorithm>& algorithms() {
  static const std::vector<NamedAlgorithm> table{
      {"ring", ring},
      {"bidirectional_ring", bidirectional_ring},
      {"star", star},
      {"sharded_star", sharded_star},
      {"tree", tree, tree},
      {"double_tree", double_tree, double_tree},
      {"halving_doubling", halving_doubling},
      {"one_shot", one_shot},
      {"two_shot", two_shot},
  };
  return table;
}

const std::vector<NamedAlgorithm>& other_collectives() {
  static const std::vector<NamedAlgorithm> table{
      {"reduce_scatter", reduce_scatter},  {"all_gather", all_gather}, {"reduce", reduce, reduce},
      {"broadcast", broadcast, broadcast}, {"all_to_all", all_to_all},
  };
  return table;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const NamedAlgorithm& algorithm : algorithms()) names.push_back(algorithm.name);
  return names;
}

Algorithm algorithm_named(const std::string& name, const std::string& option) {
  for (const NamedAlgorithm& algorithm : algorithms())
    if (algorithm.name == name) return algorithm.plan;
  throw unknown_name(option, name, algorithm_names());
}

void check_sizes(int ranks, int64_t count) {
  if (ranks < 1 || ranks > kMostRanks)
    throw Error(fmt::format("plan: {} ranks: there may be 1 to {}", ranks, kMostRanks));
  if (count < 0 || count > kMostElements)
    throw Error(fmt::format("plan: {} elements: there may be 0 to {}", count, kMostElements));
}

Slice slice_of(const Slice& whole, int n, int i) {
  const int64_t unit = whole.size() >= 32 * static_cast<int64_t>(n) ? 32 : 1;
  const auto begin = [&](int64_t k) {
    return k == n ? whole.end : whole.begin + whole.size() / unit * k / n * unit;
  };
  return {begin(i), begin(i + 1)};
}

std::string to_string(const Transfer& t) {
  return fmt::format("round {}: {} -> {} {} [{}, {})", t.round, t.source, t.destination,
                     t.action == Action::add ? "add" : "copy", t.slice.begin, t.slice.end);
}

const std::vector<Goal>& goals() {
  static const std::vector<Goal> all{Goal::allreduce, Goal::reduce_scatter, Goal::all_gather,
                                     Goal::broadcast, Goal::reduce,         Goal::all_to_all};
  return all;
}

std::string name_of(Goal goal) {
  switch (goal) {
    case Goal::allreduce:
      return "allreduce";
    case Goal::reduce_scatter:
      return "reduce_scatter";
    case Goal::all_gather:
      return "all_gather";
    case Goal::broadcast:
      return "broadcast";
    case Goal::reduce:
      return "reduce";
    case Goal::all_to_all:
      return "all_to_all";
  }
  return "";
}

Cost cost_of(const Plan& plan) {
  Cost cost{0, 0, 0};
  std::vector<int64_t> sent(static_cast<size_t>(plan.ranks)), received(sent);
  for (const Transfer& t : plan.transfers) {
    cost.rounds = std::max(cost.rounds, t.round + 1);
    cost.most_sent = std::max(cost.most_sent, sent[t.source] += t.slice.size());
    cost.most_received = std::max(cost.most_received, received[t.destination] += t.slice.size());
  }
  return cost;
}

}  // namespace lockstep::collective
