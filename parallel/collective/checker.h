// Proves a plan right without running it: which ranks' contributions each buffer holds is followed as sets,
// transfer by transfer.
#pragma once

#include "parallel/collective/plan.h"

namespace lockstep::collective {

// Throws Error with the first violation, in words, unless
//   - every transfer is in bounds, not empty, and between two different ranks, and rounds never fall;
//   - no transfer reads elements that another of its round writes at that rank, and no two of a round write
//     the same elements;
//   - no addition counts a contribution twice;
//   - every rank ends with every rank's contribution to every element.
void check(const Plan& plan);

}  // namespace lockstep::collective
