// Allreduces in which every value goes straight to where it is added: through one hub, or with each rank the
// hub of its own slice. And the all-to-all, in which nothing is added.
#include "kernels/combine.h"
#include "parallel/collective/parts.h"

namespace lockstep::collective {

// Star: rank 0 is the hub.
//
//       1   2   3           rounds 0 .. n-2: the hub adds one rank's buffer after the other
//        \  |  /            round n-1: the hub's sum goes back to all, at the same time
//         > 0 <
//
// Cost: n rounds; the hub's port carries (n-1) * S bytes each way, and nobody else's is half as busy.
Plan star(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count);
  const Slice all{0, count};
  for (int rank = 1; rank < ranks; ++rank) send(plan, rank - 1, rank, 0, all, Action::add);
  for (int rank = 1; rank < ranks; ++rank) send(plan, ranks - 1, 0, rank, all, Action::copy);
  return plan;
}

// Sharded star: the buffer is cut into n slices, and rank r is the hub of slice r. In round s it adds what
// the rank s + 1 places to its right holds of it, so that in every round each rank sends to one and receives
// from one. Four ranks, slices a b c d:
//
//     round       to 0     to 1     to 2     to 3
//       0  add   a of 1   b of 2   c of 3   d of 0
//       1  add   a of 2   b of 3   c of 0   d of 1
//       2  add   a of 3   b of 0   c of 1   d of 2     now rank 0 holds all of a, ...
//       3  copy  every rank sends its slice to all others, at the same time
//
// Cost: n rounds; every port carries 2(n-1)/n * S bytes, as in a ring, but every pair of ranks needs a link.
Plan sharded_star(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count);
  const auto slice = [&](int hub) { return slice_of({0, count}, ranks, hub); };
  for (int round = 0; round < ranks - 1; ++round)
    for (int hub = 0; hub < ranks; ++hub)
      send(plan, round, (hub + round + 1) % ranks, hub, slice(hub), Action::add);
  for (int away = 1; away < ranks; ++away)
    for (int hub = 0; hub < ranks; ++hub)
      send(plan, ranks - 1, hub, (hub + away) % ranks, slice(hub), Action::copy);
  return plan;
}

// One shot: a kernel of rank 0 reads the buffers of all, and writes the sum into all: the star without its
// rounds. More ranks than a kernel can take go through the star itself, which adds in the same order.
Plan one_shot(int ranks, int64_t count) {
  Plan plan = star(ranks, count);
  plan.fused = ranks <= kernels::kMostBuffers;
  return plan;
}

// Two shot: each rank does so with its own slice, as in the sharded star.
Plan two_shot(int ranks, int64_t count) {
  Plan plan = sharded_star(ranks, count);
  plan.fused = ranks <= kernels::kMostBuffers;
  return plan;
}

// All to all: every rank has something for each other one. As a transfer moves the same elements at both
// ends, the buffer has room for all of it: part r of slice i is what rank i has for rank r. In round s every
// rank sends to the one s + 1 places to its right.
//
//     rank 1's buffer, n = 3     slice 0   |   slice 1   |   slice 2
//                               .  in   .  | out  own out|   .  in   .
//
// Cost: n-1 rounds; every port carries (n-1)/n^2 * S bytes.
Plan all_to_all(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count, Goal::all_to_all);
  for (int round = 0; round < ranks - 1; ++round)
    for (int rank = 0; rank < ranks; ++rank) {
      const int to = (rank + round + 1) % ranks;
      send(plan, round, rank, to, slice_of(slice_of({0, count}, ranks, rank), ranks, to), Action::copy);
    }
  return plan;
}

}  // namespace lockstep::collective
