// What a plan would take on a network: a pure function. Small plans event by event, in the order that their
// schedule keeps and the executor obeys; large ones round by round.
#pragma once

#include <string>
#include <vector>

#include "parallel/collective/network.h"
#include "parallel/collective/plan.h"

namespace lockstep::collective {

// Up to so many transfers a plan is followed event by event: about a second.
constexpr size_t kMostTransfersByEvents = 2500;

// Seconds. Rank r is on node places[r] (Network::node_of, node_named); without places, on device r.
// Event by event: a task starts when all that it waits for are done, takes alpha, and shares the lanes that
// it uses with what moves at the same time. For elements of so many bytes.
double predict_by_events(const Plan& plan, const Network& network, double bytes_per_element,
                         const std::vector<int>& places = {});

// Round by round: each takes its longest alpha, and what its fullest lane needs; nobody begins a round before
// all have ended the one before.
double predict_by_rounds(const Plan& plan, const Network& network, double bytes_per_element,
                         const std::vector<int>& places = {});

// One of the two, by the plan's size.
double predict(const Plan& plan, const Network& network, double bytes_per_element,
               const std::vector<int>& places = {});

// The allreduce of this name over so many devices, up to kMostRanks. Rings and the sharded star, whose plans
// grow with the square of the ranks, are not listed for many of them: one round of a ring stands for all.
double predict_allreduce(const std::string& algorithm, int ranks, int64_t count, const Network& network,
                         double bytes_per_element);

}  // namespace lockstep::collective
