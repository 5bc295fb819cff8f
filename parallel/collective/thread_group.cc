#include "parallel/collective/thread_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/autograd.h"
#include "kernels/check.h"

namespace lockstep::collective {

class ThreadGroup::Rank : public Group {
 public:
  Rank(std::shared_ptr<ThreadGroup> threads, size_t r) : threads_(std::move(threads)), r_(r) {}
  int rank() const override { return static_cast<int>(r_); }
  int size() const override { return static_cast<int>(threads_->devices_.size()); }
  std::vector<int64_t> all_gather(int64_t value) override { return threads_->rendezvous(r_, {value, {}}); }
  void all_reduce(const Tensor& values) override { threads_->rendezvous(r_, {0, values}); }

 private:
  std::shared_ptr<ThreadGroup> threads_;
  size_t r_;
};

ThreadGroup::ThreadGroup(const std::vector<Device>& devices, Algorithm algorithm)
    : devices_(devices),
      allreduce_(devices, algorithm),
      states_(devices.size(), State::absent),
      contributions_(devices.size()) {}

std::shared_ptr<Group> ThreadGroup::of_rank(std::shared_ptr<ThreadGroup> threads, size_t r) {
  return std::make_shared<Rank>(std::move(threads), r);
}

void ThreadGroup::run(const std::vector<bool>& runs, const std::function<void(size_t)>& work) {
  {
    const std::lock_guard lock(mutex_);
    for (size_t r = 0; r < runs.size(); ++r) states_[r] = runs[r] ? State::running : State::absent;
    reductions_ = 0;
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

std::vector<int64_t> ThreadGroup::rendezvous(size_t r, const Contribution& contribution) {
  std::unique_lock lock(mutex_);
  if (states_[r] != State::running)
    throw Error(fmt::format(
        "a layer that needs all replicas (batch norm with the statistics of the whole batch) ran in "
        "replica {} alone: run it through DataParallel, or in evaluation mode",
        r));
  contributions_[r] = contribution;
  states_[r] = State::waiting;
  const int64_t before = rendezvous_;
  settle();
  changed_.wait(lock, [&] { return rendezvous_ != before || !failure_.empty(); });
  if (rendezvous_ == before) throw Error(failure_);
  return numbers_;
}

void ThreadGroup::end(size_t r, const std::string& error) {
  const std::lock_guard lock(mutex_);
  states_[r] = State::ended;
  // What comes after a failure follows from it.
  if (!error.empty() && failure_.empty()) errors_[r] = fmt::format("replica {}: {}", r, error);
  settle();
}

// When no rank is on its way any more, those that wait are either complete or can never be. (Not before: then
// the error does not depend on who came first.)
void ThreadGroup::settle() {
  const auto count = [this](State state) { return std::count(states_.begin(), states_.end(), state); };
  if (count(State::running) > 0 || count(State::waiting) == 0 || !failure_.empty()) return;
  failure_ = why_not();
  if (failure_.empty()) complete();
  changed_.notify_all();
}

// Why those that wait cannot go on; nothing where they can.
std::string ThreadGroup::why_not() const {
  for (const std::string& error : errors_)
    if (!error.empty()) return error;
  const auto waiting = std::find(states_.begin(), states_.end(), State::waiting);
  const auto first = static_cast<size_t>(waiting - states_.begin());
  for (size_t r = 0; r < states_.size(); ++r) {
    if (states_[r] == State::ended)
      return fmt::format(
          "replica {} ended after {} sums over all replicas, but replica {} has another: with the "
          "statistics of the whole batch they must run the same layers",
          r, reductions_, first);
    const Tensor &own = contributions_[r].values, &other = contributions_[first].values;
    if (states_[r] == State::waiting &&
        (own.defined() != other.defined() || (own.defined() && own.shape() != other.shape())))
      return fmt::format(
          "replicas {} and {} differ at sum {} over all replicas: with the statistics of the whole batch "
          "they must run the same layers",
          first, r, reductions_ + 1);
  }
  return "";
}

void ThreadGroup::complete() {
  const auto waiting = std::find(states_.begin(), states_.end(), State::waiting);
  const Tensor model = contributions_[static_cast<size_t>(waiting - states_.begin())].values;
  numbers_.clear();
  std::vector<Tensor> values;
  for (size_t r = 0; r < states_.size(); ++r) {
    const Contribution own = std::exchange(contributions_[r], {});
    numbers_.push_back(own.number);
    if (!model.defined()) continue;
    // A rank that does not run has nothing to add.
    values.push_back(own.values.defined() ? own.values : Tensor::zeros(model.shape(), devices_[r]));
  }
  if (model.defined()) {
    try {
      allreduce_(values);
    } catch (const std::exception& thrown) {
      failure_ = thrown.what();
      return;
    }
    ++reductions_;
  }
  for (State& state : states_)
    if (state == State::waiting) state = State::running;
  ++rendezvous_;
}

}  // namespace lockstep::collective
