// What the algorithms are made of: an empty plan to fill, a transfer of what is not empty, and the order of
// rounds.
#pragma once

#include "parallel/collective/plan.h"

namespace lockstep::collective {

// A plan without transfers. Throws as check_sizes does.
Plan empty_plan(int ranks, int64_t count, Goal goal = Goal::allreduce);

// Adds a transfer, unless the slice is empty (fewer elements than slices).
void send(Plan& plan, int round, int source, int destination, const Slice& slice, Action action);

// Brings the transfers into the order of their rounds; within a round they keep theirs.
void sort_by_round(Plan& plan);

}  // namespace lockstep::collective
