#include "parallel/replica_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/autograd.h"
#include "kernels/check.h"

namespace lockstep::parallel {

class ReplicaThreads::Seat : public nn::ReplicaStatistics {
 public:
  Seat(std::shared_ptr<ReplicaThreads> threads, size_t r) : threads_(std::move(threads)), r_(r) {}
  int rank() const override { return static_cast<int>(r_); }
  std::vector<int64_t> gather(int64_t rows) override { return threads_->meet(r_, {rows, {}}); }
  void sum(const Tensor& values) override { threads_->meet(r_, {0, values}); }

 private:
  std::shared_ptr<ReplicaThreads> threads_;
  size_t r_;
};

ReplicaThreads::ReplicaThreads(const std::vector<Device>& devices, Algorithm algorithm)
    : devices_(devices),
      allreduce_(devices, algorithm),
      states_(devices.size(), State::absent),
      contributions_(devices.size()) {}

std::shared_ptr<nn::ReplicaStatistics> ReplicaThreads::statistics_of(std::shared_ptr<ReplicaThreads> threads,
                                                                     size_t r) {
  return std::make_shared<Seat>(std::move(threads), r);
}

void ReplicaThreads::run(const std::vector<bool>& runs, const std::function<void(size_t)>& work) {
  {
    const std::lock_guard lock(mutex_);
    for (size_t r = 0; r < runs.size(); ++r) states_[r] = runs[r] ? State::running : State::absent;
    norms_ = 0;
    errors_.assign(runs.size(), "");
    failure_.clear();
  }
  const bool without_grad = NoGrad::in_force();
  const auto body = [&](size_t r) {
    std::string error;
    try {
      std::optional<NoGrad> no_grad;
      if (without_grad) no_grad.emplace();
      const DeviceGuard guard(devices_[r]);
      work(r);
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    end(r, error);
  };
  {
    std::vector<std::jthread> threads;  // joined at the end of the scope
    for (size_t r = 0; r < runs.size(); ++r) {
      if (!runs[r]) continue;
      try {
        threads.emplace_back(body, r);
      } catch (const std::system_error& thrown) {
        end(r, fmt::format("no thread for it: {}", thrown.what()));
      }
    }
  }
  const std::lock_guard lock(mutex_);
  states_.assign(states_.size(), State::absent);
  contributions_.assign(states_.size(), {});
  for (const std::string& error : errors_)
    if (!error.empty()) throw Error(error);
  if (!failure_.empty()) throw Error(failure_);
}

std::vector<int64_t> ReplicaThreads::meet(size_t r, const Contribution& contribution) {
  std::unique_lock lock(mutex_);
  if (states_[r] != State::running)
    throw Error(
        fmt::format("a batch norm with the statistics of all replicas ran in replica {} alone: run it "
                    "through DataParallel, or in evaluation mode",
                    r));
  contributions_[r] = contribution;
  states_[r] = State::waiting;
  const int64_t meeting = meetings_;
  settle();
  changed_.wait(lock, [&] { return meetings_ != meeting || !failure_.empty(); });
  if (meetings_ == meeting) throw Error(failure_);
  return rows_;
}

void ReplicaThreads::end(size_t r, const std::string& error) {
  const std::lock_guard lock(mutex_);
  states_[r] = State::ended;
  // What comes after a failure follows from it.
  if (!error.empty() && failure_.empty()) errors_[r] = fmt::format("replica {}: {}", r, error);
  settle();
}

// When no replica is on its way any more, those that wait either meet or can never meet. (Not before: then
// the error does not depend on who came first.)
void ReplicaThreads::settle() {
  const auto count = [this](State state) { return std::count(states_.begin(), states_.end(), state); };
  if (count(State::running) > 0 || count(State::waiting) == 0 || !failure_.empty()) return;
  failure_ = why_not();
  if (failure_.empty()) complete();
  changed_.notify_all();
}

// Why those that wait cannot meet; nothing where they can.
std::string ReplicaThreads::why_not() const {
  for (const std::string& error : errors_)
    if (!error.empty()) return error;
  const auto waiting = std::find(states_.begin(), states_.end(), State::waiting);
  const auto first = static_cast<size_t>(waiting - states_.begin());
  for (size_t r = 0; r < states_.size(); ++r) {
    if (states_[r] == State::ended)
      return fmt::format(
          "replica {} ended after {} batch norms, but replica {} has another: with the "
          "statistics of the whole batch they must run the same layers",
          r, norms_, first);
    const Tensor &own = contributions_[r].values, &other = contributions_[first].values;
    if (states_[r] == State::waiting &&
        (own.defined() != other.defined() || (own.defined() && own.shape() != other.shape())))
      return fmt::format(
          "replicas {} and {} differ at batch norm {}: with the statistics of the whole batch "
          "they must run the same layers",
          first, r, norms_ + 1);
  }
  return "";
}

void ReplicaThreads::complete() {
  const auto waiting = std::find(states_.begin(), states_.end(), State::waiting);
  const Tensor model = contributions_[static_cast<size_t>(waiting - states_.begin())].values;
  rows_.clear();
  std::vector<Tensor> values;
  for (size_t r = 0; r < states_.size(); ++r) {
    const Contribution own = std::exchange(contributions_[r], {});
    rows_.push_back(own.rows);
    if (!model.defined()) continue;
    // A replica that does not run has an empty shard.
    values.push_back(own.values.defined() ? own.values : Tensor::zeros(model.shape(), devices_[r]));
  }
  if (model.defined()) {
    try {
      allreduce_(values);
    } catch (const std::exception& thrown) {
      failure_ = thrown.what();
      return;
    }
    ++norms_;
  }
  for (State& state : states_)
    if (state == State::waiting) state = State::running;
  ++meetings_;
}

}  // namespace lockstep::parallel
