// Proves a plan right without running it: which ranks' contributions each buffer holds is followed as sets,
// transfer by transfer.
#pragma once

#include <optional>
#include <string>

#include "parallel/collective/plan.h"

namespace lockstep::collective {

// What is wrong with a plan.
struct Violation {
  std::string what;  // "rank 2 adds slice [25, 50) of rank 1 twice, in rounds 3 and 5: ..."
  int transfer;      // the faulty one; -1: something is missing at the end
  int rank;          // where something is missing; else -1
};

// The first violation, unless
//   - every transfer is in bounds, not empty, and between two different ranks, and rounds never fall;
//   - no transfer reads elements that another of its round writes at that rank, and no two of a round write
//     the same elements;
//   - no addition counts a contribution twice;
//   - every rank ends with what the plan's goal asks for;
//   - every slice of a fused plan is summed up in one rank and copied from it.
// The contribution of a rank is what it held at the beginning; a sum holds contributions of several ranks.
std::optional<Violation> find_violation(const Plan& plan);

// Throws Error with the first violation, in words, behind "plan: ".
void check(const Plan& plan);

}  // namespace lockstep::collective
