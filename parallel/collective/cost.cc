#include "parallel/collective/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "kernels/combine.h"
#include "parallel/collective/flows.h"
#include "parallel/collective/schedule.h"

namespace lockstep::collective {
namespace {

// Where the ranks are, and how many bytes an element has there.
class Placement {
 public:
  Placement(int ranks, const Network& network, double bytes_per_element, const std::vector<int>& places)
      : network_(network), bytes_(bytes_per_element), places_(places) {
    if (!places.empty() && places.size() != static_cast<size_t>(ranks))
      throw Error(fmt::format("predict: {} places for {} ranks", places.size(), ranks));
    if (places.empty()) {
      network.check_devices(ranks, "devices");
      for (int rank = 0; rank < ranks; ++rank) places_.push_back(network.node_of(rank));
    }
    for (const int place : places_) servers_ = std::max(servers_, network.server_of(place) + 1);
  }

  Path path(int source, int destination, Action action) const {
    return network_.path(places_[source], places_[destination], action == Action::add);
  }
  double bytes(const Slice& slice) const { return static_cast<double>(slice.size()) * bytes_; }
  std::vector<double> capacities() const {
    std::vector<double> all;
    for (int lane = 0; lane < network_.lanes(servers_); ++lane) all.push_back(network_.capacity(lane));
    return all;
  }

 private:
  const Network& network_;
  const double bytes_;
  std::vector<int> places_;
  int servers_ = 1;
};

void add_flow(Job& job, const Placement& placement, int source, int destination, Action action,
              const Slice& slice) {
  Path path = placement.path(source, destination, action);
  job.alpha = std::max(job.alpha, path.alpha);
  job.flows.push_back({placement.bytes(slice), std::move(path.uses)});
}

Job job_of(const Task& task, int ranks, const Placement& placement) {
  Job job;
  if (task.kind == Task::Kind::transfer)
    add_flow(job, placement, task.transfer.source, task.rank, task.transfer.action, task.transfer.slice);
  if (task.kind == Task::Kind::combine)  // reads what all others have, and writes into all others
    for (int other = 0; other < ranks; ++other)
      if (other != task.rank) {
        add_flow(job, placement, other, task.rank, Action::add, task.transfer.slice);
        add_flow(job, placement, task.rank, other, Action::copy, task.transfer.slice);
      }
  return job;
}

// Adds up rounds, of which nothing is kept but what they put on each lane.
class Rounds {
 public:
  explicit Rounds(const Placement& placement)
      : placement_(placement), capacities_(placement.capacities()), bytes_(capacities_.size()) {}

  void add(int source, int destination, const Slice& slice, Action action) {
    if (slice.size() == 0) return;
    const Path path = placement_.path(source, destination, action);
    alpha_ = std::max(alpha_, path.alpha);
    for (const Use& use : path.uses) {
      bytes_[use.lane] += use.bytes * placement_.bytes(slice);
      longest_ = std::max(longest_, bytes_[use.lane] / capacities_[use.lane]);
    }
  }

  // The transfers since the last end are one round; so many more are like it.
  void end_round(int times = 1) {
    seconds_ += times * (alpha_ + longest_);
    alpha_ = longest_ = 0;
    std::ranges::fill(bytes_, 0);
  }

  double seconds() const { return seconds_; }

 private:
  const Placement& placement_;
  const std::vector<double> capacities_;
  std::vector<double> bytes_;  // of this round, by lane
  double alpha_ = 0, longest_ = 0, seconds_ = 0;
};

// In each of the 2(n-1) rounds, each rank sends a slice to its right neighbour; with `both_ways`, half of
// one, and another half to the left.
double predict_ring(int n, const Slice& all, bool both_ways, const Placement& placement) {
  Rounds rounds(placement);
  for (const Action action : {Action::add, Action::copy}) {
    for (int rank = 0; rank < n; ++rank) {
      const int right = (rank + 1) % n;
      if (both_ways) {
        rounds.add(rank, right, slice_of(slice_of(all, 2, 0), n, rank), action);
        rounds.add(right, rank, slice_of(slice_of(all, 2, 1), n, rank), action);
      } else {
        rounds.add(rank, right, slice_of(all, n, rank), action);
      }
    }
    rounds.end_round(n - 1);
  }
  return rounds.seconds();
}

// The rounds of sharded_star (star.cc). Servers are alike, and the plan is the same seen from each: what the
// first one's lanes carry tells all, so only the transfers that begin or end there are looked at, and all
// slices are taken as long as the longest.
double predict_sharded_star(int n, const Slice& all, const Network& network, const Placement& placement) {
  Slice slice{0, 0};
  for (int hub = 0; hub < n; ++hub)
    if (slice_of(all, n, hub).size() > slice.size()) slice = slice_of(all, n, hub);
  const int first_server = std::min(n, network.devices_per_server());
  Rounds rounds(placement);
  // What goes `away` places to the right from each rank.
  const auto add_shift = [&](int away, Action action) {
    for (int rank = 0; rank < first_server; ++rank) {
      rounds.add(rank, (rank + away) % n, slice, action);
      if (const int source = (rank - away + n) % n; source >= first_server)
        rounds.add(source, rank, slice, action);
    }
  };
  for (int away = 1; away < n; ++away) {
    add_shift(n - away, Action::add);
    rounds.end_round();
  }
  for (int away = 1; away < n; ++away) add_shift(away, Action::copy);
  rounds.end_round();
  return rounds.seconds();
}

}  // namespace

double predict_by_events(const Plan& plan, const Network& network, double bytes_per_element,
                         const std::vector<int>& places) {
  const Placement placement(plan.ranks, network, bytes_per_element, places);
  const Schedule schedule = collective::schedule(plan);
  std::vector<int> last_on_stream(schedule.streams.size(), -1);
  std::vector<Job> jobs;
  for (const Task& task : schedule.tasks) {
    Job job = job_of(task, plan.ranks, placement);
    job.after = task.after;  // tasks of other streams
    int& last = last_on_stream[task.stream];
    if (last >= 0) job.after.push_back(last);
    last = static_cast<int>(jobs.size());
    jobs.push_back(std::move(job));
  }
  return time_of(jobs, placement.capacities());
}

double predict_by_rounds(const Plan& plan, const Network& network, double bytes_per_element,
                         const std::vector<int>& places) {
  const Placement placement(plan.ranks, network, bytes_per_element, places);
  Rounds rounds(placement);
  for (size_t i = 0; i < plan.transfers.size(); ++i) {
    const Transfer& t = plan.transfers[i];
    if (i > 0 && plan.transfers[i - 1].round != t.round) rounds.end_round();
    rounds.add(t.source, t.destination, t.slice, t.action);
  }
  rounds.end_round();
  return rounds.seconds();
}

double predict(const Plan& plan, const Network& network, double bytes_per_element,
               const std::vector<int>& places) {
  return plan.fused || plan.transfers.size() <= kMostTransfersByEvents
             ? predict_by_events(plan, network, bytes_per_element, places)
             : predict_by_rounds(plan, network, bytes_per_element, places);
}

double predict_allreduce(const std::string& algorithm, int ranks, int64_t count, const Network& network,
                         double bytes_per_element) {
  const Algorithm plan = algorithm_named(algorithm);
  check_sizes(ranks, count);
  const auto n = static_cast<size_t>(ranks);
  const bool listed = 2 * n * (n - 1) <= kMostTransfersByEvents;
  if (!listed) {
    const Placement placement(ranks, network, bytes_per_element, {});
    const Slice all{0, count};
    if (plan == Algorithm{ring}) return predict_ring(ranks, all, false, placement);
    if (plan == Algorithm{bidirectional_ring}) return predict_ring(ranks, all, true, placement);
    if (plan == Algorithm{sharded_star}) return predict_sharded_star(ranks, all, network, placement);
    if (plan == Algorithm{two_shot} && ranks > kernels::kMostBuffers)
      return predict_sharded_star(ranks, all, network, placement);
  }
  return predict(plan(ranks, count), network, bytes_per_element);
}

}  // namespace lockstep::collective
