#include "parallel/collective/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/names.h"
#include "kernels/check.h"
#include "kernels/combine.h"

namespace lockstep::collective {
namespace {

Plan empty_plan(int ranks, int64_t count) {
  check_sizes(ranks, count);
  return {ranks, count, {}};
}

// Slice i of n: sizes differ by one unit at most. Long slices begin on whole 128-byte lines of floats, which
// copies and vector loads like.
Slice slice_of(int64_t count, int n, int i) {
  const int64_t unit = count >= 32 * static_cast<int64_t>(n) ? 32 : 1;
  const auto begin = [&](int64_t k) { return k == n ? count : count / unit * k / n * unit; };
  return {begin(i), begin(i + 1)};
}

// How deep a rank sits in the tree whose node r has the children 2r + 1 and 2r + 2.
int depth(int rank) {
  return std::bit_width(static_cast<unsigned>(rank) + 1) - 1;
}

}  // namespace

void check_sizes(int ranks, int64_t count) {
  if (ranks < 1 || ranks > kMostRanks)
    throw Error(fmt::format("plan: {} ranks: there may be 1 to {}", ranks, kMostRanks));
  if (count < 0 || count > kMostElements)
    throw Error(fmt::format("plan: {} elements: there may be 0 to {}", count, kMostElements));
}

std::string to_string(const Transfer& t) {
  return fmt::format("round {}: {} -> {} {} [{}, {})", t.round, t.source, t.destination,
                     t.action == Action::add ? "add" : "copy", t.slice.begin, t.slice.end);
}

// Star: rank 0 is the hub.
//
//       1   2   3           rounds 0 .. n-2: the hub adds one rank's buffer after the other
//        \  |  /            round n-1: the hub's sum goes back to all, at the same time
//         > 0 <
//
// Cost: n rounds; the hub's port carries (n-1) * S bytes each way, and nobody else's is half as busy.
Plan star(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count);
  if (count == 0) return plan;
  const Slice all{0, count};
  for (int rank = 1; rank < ranks; ++rank) plan.transfers.push_back({rank - 1, rank, 0, all, Action::add});
  for (int rank = 1; rank < ranks; ++rank) plan.transfers.push_back({ranks - 1, 0, rank, all, Action::copy});
  return plan;
}

// Ring: the buffer is cut into n slices, and every rank sends to its right neighbour only, so that all links
// are busy in every round. Two laps: the reduce-scatter leaves the finished slice r + 1 in rank r, the
// all-gather carries it to all. Four ranks, slices a b c d:
//
//    0 -> 1 -> 2 -> 3 -+     round      0->1  1->2  2->3  3->0
//    ^                 |       0   add    a     b     c     d     reduce-scatter: first your own slice,
//    +-----------------+       1   add    d     a     b     c     then what just arrived, with your part in
//    it
//                              2   add    c     d     a     b     now rank 0 holds all of b, ...
//                              3   copy   b     c     d     a     all-gather: first the slice you finished,
//                              4   copy   a     b     c     d     then what just arrived
//                              5   copy   d     a     b     c     everybody holds everything
//
// Cost: 2(n-1) rounds; every link carries 2(n-1)/n * S bytes, and no algorithm can do with less (Patarasuk
// and Yuan, 2009).
Plan ring(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count);
  const auto send_right = [&](int round, int rank, int slice, Action action) {
    const Slice elements = slice_of(count, ranks, (slice + ranks) % ranks);
    if (elements.size() == 0) return;  // fewer elements than ranks
    plan.transfers.push_back({round, rank, (rank + 1) % ranks, elements, action});
  };
  const int lap = ranks - 1;
  for (int step = 0; step < lap; ++step)  // reduce-scatter
    for (int rank = 0; rank < ranks; ++rank) send_right(step, rank, rank - step, Action::add);
  for (int step = 0; step < lap; ++step)  // all-gather
    for (int rank = 0; rank < ranks; ++rank) send_right(lap + step, rank, rank + 1 - step, Action::copy);
  return plan;
}

// Tree: rank r has the children 2r + 1 and 2r + 2. Sums climb to the root, then the total comes down.
//
//           0            level by level from the deepest: the left children (odd ranks) send up, and in the
//         /   \          next round the right ones, because a parent can add only one buffer at a time
//        1     2         then from the root down: every parent sends to both children in one round
//       / \   /
//      3   4 5
//
// Cost: 3h rounds for h = floor(log2 n) levels below the root; an inner rank's port carries 3S bytes each
// way.
Plan tree(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count);
  if (count == 0) return plan;
  const Slice all{0, count};
  const int levels = depth(ranks - 1);
  int round = 0;
  for (int level = levels; level > 0; --level) {
    for (const int odd : {1, 0}) {
      for (int rank = 1; rank < ranks; ++rank)
        if (depth(rank) == level && rank % 2 == odd)
          plan.transfers.push_back({round, rank, (rank - 1) / 2, all, Action::add});
      ++round;
    }
  }
  for (int level = 1; level <= levels; ++level, ++round) {
    for (int rank = 1; rank < ranks; ++rank)
      if (depth(rank) == level) plan.transfers.push_back({round, (rank - 1) / 2, rank, all, Action::copy});
  }
  return plan;
}

// One shot: a kernel of rank 0 reads the buffers of all, and writes the sum into all: the star without its
// rounds. More ranks than a kernel can take go through the star itself, which adds in the same order.
Plan one_shot(int ranks, int64_t count) {
  Plan plan = star(ranks, count);
  plan.fused = ranks <= kernels::kMostBuffers;
  return plan;
}

// Two shot: each rank does so with its own part of the elements.
Plan two_shot(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count);
  plan.fused = ranks <= kernels::kMostBuffers;
  for (int owner = 0; owner < ranks; ++owner) {
    const Slice part = slice_of(count, ranks, owner);
    if (part.size() == 0) continue;
    for (int i = 1; i < ranks; ++i)
      plan.transfers.push_back({i - 1, (owner + i) % ranks, owner, part, Action::add});
    for (int i = 1; i < ranks; ++i)
      plan.transfers.push_back({ranks - 1, owner, (owner + i) % ranks, part, Action::copy});
  }
  std::stable_sort(plan.transfers.begin(), plan.transfers.end(),
                   [](const Transfer& a, const Transfer& b) { return a.round < b.round; });
  return plan;
}

const std::vector<NamedAlgorithm>& algorithms() {
  static const std::vector<NamedAlgorithm> table{
      {"ring", ring}, {"star", star}, {"tree", tree}, {"one_shot", one_shot}, {"two_shot", two_shot},
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

}  // namespace lockstep::collective
