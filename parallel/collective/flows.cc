#include "parallel/collective/flows.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <utility>

namespace lockstep::collective {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// What is so near to an event happens with it: times are sums of many roundings.
constexpr double kSame = 1e-9;
constexpr double kNothing = 1e-14;  // of the time so far: adding less would not move the clock

class Simulation {
 public:
  Simulation(const std::vector<Job>& jobs, const std::vector<double>& capacities)
      : jobs_(jobs),
        capacities_(capacities),
        waits_for_(jobs.size()),
        flows_left_(jobs.size()),
        next_(jobs.size()) {
    for (size_t j = 0; j < jobs.size(); ++j) {
      waits_for_[j] = static_cast<int>(jobs[j].after.size());
      for (const int before : jobs[j].after) next_[before].push_back(static_cast<int>(j));
    }
  }

  double run() {
    for (size_t j = 0; j < jobs_.size(); ++j)
      if (jobs_[j].after.empty()) start(static_cast<int>(j));
    for (;;) {
      begin_flows();
      const double event = next_event();
      if (event == kNever) return now_;
      for (Moving& flow : moving_) flow.left -= flow.rate * (event - now_);
      now_ = event;
      end_flows();
    }
  }

 private:
  struct Moving {
    int job;
    const Flow* flow;
    double left, rate;
  };

  void start(int job) { starting_.emplace(now_ + jobs_[job].alpha, job); }

  // Those whose alpha is over.
  void begin_flows() {
    bool changed = std::exchange(changed_, false);
    while (!starting_.empty() && starting_.top().first <= now_ * (1 + kSame)) {
      const int job = starting_.top().second;
      starting_.pop();
      for (const Flow& flow : jobs_[job].flows)
        if (flow.bytes > 0 && !flow.uses.empty()) {
          moving_.push_back({job, &flow, flow.bytes, 0});
          ++flows_left_[job];
          changed = true;
        }
      if (flows_left_[job] == 0) done(job);
    }
    if (!changed) return;
    std::vector<const Flow*> flows;
    for (const Moving& flow : moving_) flows.push_back(flow.flow);
    const std::vector<double> rates = fair_rates(flows, capacities_);
    for (size_t f = 0; f < moving_.size(); ++f) moving_[f].rate = rates[f];
  }

  double next_event() const {
    double event = starting_.empty() ? kNever : starting_.top().first;
    for (const Moving& flow : moving_) event = std::min(event, now_ + std::max(0.0, flow.left / flow.rate));
    return event;
  }

  void end_flows() {
    const auto over = [this](const Moving& flow) {
      return flow.left <= flow.flow->bytes * kSame || flow.left / flow.rate <= now_ * kNothing;
    };
    for (const Moving& flow : moving_)
      if (over(flow) && --flows_left_[flow.job] == 0) done(flow.job);
    changed_ = std::erase_if(moving_, over) > 0;
  }

  void done(int job) {
    for (const int next : next_[job])
      if (--waits_for_[next] == 0) start(next);
  }

  const std::vector<Job>& jobs_;
  const std::vector<double>& capacities_;
  std::vector<int> waits_for_, flows_left_;
  std::vector<std::vector<int>> next_;
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>> starting_;
  std::vector<Moving> moving_;
  double now_ = 0;
  bool changed_ = false;  // flows have ended: the others may be faster now
};

}  // namespace

std::vector<double> fair_rates(const std::vector<const Flow*>& flows, const std::vector<double>& capacities) {
  struct Lane {
    double left;         // what the flows with a rate leave
    double growing = 0;  // bytes that it carries for each byte of all that still grow
    std::vector<size_t> flows = {};
  };
  std::map<int, Lane> lanes;
  for (size_t f = 0; f < flows.size(); ++f)
    for (const Use& use : flows[f]->uses) {
      Lane& lane = lanes.try_emplace(use.lane, Lane{capacities[use.lane]}).first->second;
      lane.growing += use.bytes;
      lane.flows.push_back(f);
    }
  std::vector<double> rates(flows.size(), -1);
  for (size_t fixed = 0; fixed < flows.size();) {
    double least = kNever;
    for (const auto& [unused, lane] : lanes)
      if (lane.growing > kSame) least = std::min(least, lane.left / lane.growing);
    std::vector<size_t> full;
    for (const auto& [unused, lane] : lanes)
      if (lane.growing > kSame && lane.left / lane.growing <= least * (1 + kSame))
        for (const size_t f : lane.flows)
          if (rates[f] < 0) {
            rates[f] = least;
            full.push_back(f);
          }
    for (const size_t f : full)
      for (const Use& use : flows[f]->uses) {
        Lane& lane = lanes.at(use.lane);
        lane.left = std::max(0.0, lane.left - use.bytes * least);
        lane.growing -= use.bytes;
      }
    fixed += full.size();
    if (full.empty()) break;  // flows without a lane
  }
  return rates;
}

double time_of(const std::vector<Job>& jobs, const std::vector<double>& capacities) {
  return Simulation(jobs, capacities).run();
}

}  // namespace lockstep::collective
