// Rings: one, one each way, or several over links that they do not share. And its two laps, each a collective
// of its own: reduce-scatter and all-gather.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/check.h"
#include "parallel/collective/parts.h"

namespace lockstep::collective {
namespace {

Ring in_order(int ranks) {
  Ring ring(static_cast<size_t>(ranks));
  std::iota(ring.begin(), ring.end(), 0);
  return ring;
}

// One lap of n-1 rounds: `part` is cut into n slices, and every rank sends one slice a round to its right
// neighbour. Place p of the ring begins with slice p + first and then passes on what has just arrived.
void add_lap(Plan& plan, const Ring& ring, const Slice& part, int round, Action action, int first) {
  const int n = plan.ranks;
  for (int step = 0; step < n - 1; ++step)
    for (int place = 0; place < n; ++place) {
      const int slice = (place + first - step + 2 * n) % n;
      send(plan, round + step, ring[place], ring[(place + 1) % n], slice_of(part, n, slice), action);
    }
}

// Both laps of a ring, see below.
void add_ring(Plan& plan, const Ring& ring, const Slice& part) {
  add_lap(plan, ring, part, 0, Action::add, 0);
  add_lap(plan, ring, part, plan.ranks - 1, Action::copy, 1);
}

}  // namespace

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
  add_lap(plan, in_order(ranks), {0, count}, 0, Action::add, 0);           // first your own slice
  add_lap(plan, in_order(ranks), {0, count}, ranks - 1, Action::copy, 1);  // first the slice you finished
  return plan;
}

// Bidirectional ring: the first half of the buffer goes around to the right and the second to the left, at
// the same time, since a link carries both ways.
//
// Cost: 2(n-1) rounds of half the bytes; every link carries (n-1)/n * S bytes each way. That is twice the
// ring's speed where it is the links that are busy, and no gain where it is the ports.
Plan bidirectional_ring(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count);
  const Ring right = in_order(ranks), left(right.rbegin(), right.rend());
  add_ring(plan, right, slice_of({0, count}, 2, 0));
  add_ring(plan, left, slice_of({0, count}, 2, 1));
  sort_by_round(plan);
  return plan;
}

// Rings over links of their own, each both ways, so that 2m directed rings carry a part of the buffer each.
// Over two ranks both directions are the same ring.
//
// Cost: 2(n-1) rounds; every link of a ring carries (n-1)/n * S/m bytes each way.
Plan rings(const std::vector<Ring>& rings, int64_t count, Directions directions) {
  if (rings.empty()) throw Error("rings: there is none");
  const int n = static_cast<int>(rings.front().size());
  Plan plan = empty_plan(n, count);
  std::vector<Ring> directed;
  for (const Ring& ring : rings) {
    Ring sorted = ring;
    std::ranges::sort(sorted);
    if (sorted != in_order(n))
      throw Error(
          fmt::format("rings: {} does not pass through each of {} ranks once", fmt::join(ring, "-"), n));
    directed.push_back(ring);
    if (n > 2 && directions == Directions::both) directed.emplace_back(ring.rbegin(), ring.rend());
  }
  const int parts = static_cast<int>(directed.size());
  for (int i = 0; i < parts; ++i) add_ring(plan, directed[i], slice_of({0, count}, parts, i));
  sort_by_round(plan);
  return plan;
}

// The ring's first lap, begun one slice earlier, so that rank r finishes slice r.
// Cost: n-1 rounds; every link carries (n-1)/n * S bytes.
Plan reduce_scatter(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count, Goal::reduce_scatter);
  add_lap(plan, in_order(ranks), {0, count}, 0, Action::add, -1);
  return plan;
}

// The ring's second lap, begun with slice r in rank r. Cost: as a reduce-scatter.
Plan all_gather(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count, Goal::all_gather);
  add_lap(plan, in_order(ranks), {0, count}, 0, Action::copy, 0);
  return plan;
}

}  // namespace lockstep::collective
