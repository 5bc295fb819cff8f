// Halving and doubling: partners that are ever nearer swap halves, then quarters, and so on. The fewest
// rounds with the fewest bytes, for powers of two.
#include <bit>

#include "parallel/collective/parts.h"

namespace lockstep::collective {

// p = the largest power of two that is not above n. The buffer is cut into p slices; each of the first p
// ranks answers for a range of them, at first for all. In a halving round its partner, who differs in one bit
// of the rank, has the same range: each keeps the half that its bit names, and adds what the partner holds of
// it. At the end rank r has slice r, finished, and the doubling goes the same way back. Four ranks, slices
// a b c d:
//
//     round          0        1        2        3
//       0  add    <- 2: ab <- 3: ab <- 0: cd <- 1: cd       partners 2 apart
//       1  add    <- 1: a  <- 0: b  <- 3: c  <- 2: d        partners 1 apart: rank 0 holds all of a, ...
//       2  copy   <- 1: b  <- 0: a  <- 3: d  <- 2: c
//       3  copy   <- 2: cd <- 3: cd <- 0: ab <- 1: ab
//
// The n - p ranks beyond add their buffers to those of the first ranks before, and get the sum after.
//
// Cost: 2 log2 p rounds, every port carries 2(p-1)/p * S bytes; where n is no power of two, two rounds more
// and S bytes more each way.
Plan halving_doubling(int ranks, int64_t count) {
  Plan plan = empty_plan(ranks, count);
  const Slice all{0, count};
  const int p = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  // The slices of those ranks that agree with `rank` in all bits from `width` up.
  const auto range = [&](int rank, int width) {
    const int first = rank / width * width;
    return Slice{slice_of(all, p, first).begin, slice_of(all, p, first + width - 1).end};
  };
  int round = 0;
  for (int extra = p; extra < ranks; ++extra) send(plan, round, extra, extra - p, all, Action::add);
  if (p < ranks) ++round;
  for (int apart = p / 2; apart > 0; apart /= 2, ++round)
    for (int rank = 0; rank < p; ++rank)
      send(plan, round, rank ^ apart, rank, range(rank, apart), Action::add);
  for (int apart = 1; apart < p; apart *= 2, ++round)
    for (int rank = 0; rank < p; ++rank)
      send(plan, round, rank ^ apart, rank, range(rank ^ apart, apart), Action::copy);
  for (int extra = p; extra < ranks; ++extra) send(plan, round, extra - p, extra, all, Action::copy);
  return plan;
}

}  // namespace lockstep::collective
