// How long jobs take that move bytes over lanes of limited speed, at the same time or after each other: event
// by event. Between two events every flow moves at its fair share of the lane that is tightest for it.
#pragma once

#include <vector>

#include "parallel/collective/network.h"

namespace lockstep::collective {

// Bytes on their way.
struct Flow {
  double bytes;
  std::vector<Use> uses;  // of none: it takes no time
};

// Starts when all of `after` are done; then waits for `alpha` seconds, and then all its flows move at once.
struct Job {
  double alpha = 0;
  std::vector<Flow> flows;
  std::vector<int> after;  // earlier jobs, each once
};

// When the last job is done, in seconds. `capacities` in bytes per second, by lane.
double time_of(const std::vector<Job>& jobs, const std::vector<double>& capacities);

// What each flow gets when all move at the same time, in bytes per second: all rates grow together until a
// lane is full, which fixes the rates of those in it; the others grow on (max-min fairness: Bertsekas and
// Gallager, Data Networks, 1992).
std::vector<double> fair_rates(const std::vector<const Flow*>& flows, const std::vector<double>& capacities);

}  // namespace lockstep::collective
