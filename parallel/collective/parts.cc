#include "parallel/collective/parts.h"

#include <algorithm>

namespace lockstep::collective {

Plan empty_plan(int ranks, int64_t count, Goal goal) {
  check_sizes(ranks, count);
  return {ranks, count, {}, goal};
}

void send(Plan& plan, int round, int source, int destination, const Slice& slice, Action action) {
  if (slice.size() > 0) plan.transfers.push_back({round, source, destination, slice, action});
}

void sort_by_round(Plan& plan) {
  std::ranges::stable_sort(plan.transfers, {}, &Transfer::round);
}

}  // namespace lockstep::collective
