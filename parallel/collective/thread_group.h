// A group whose ranks are host threads of one process, for replicas that wait in the middle for each other. A
// collective call is a rendezvous: each rank brings its value and waits; the last one to come enqueues the
// allreduce for all, and all go on. A rank that throws, or ends, releases those that wait for it, so waiting
// needs no deadline.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/collective/allreduce.h"
#include "parallel/collective/group.h"

namespace lockstep::collective {

class ThreadGroup {
 public:
  explicit ThreadGroup(const std::vector<Device>& devices, Algorithm algorithm = one_shot);

  // Calls work(r) for every rank with runs[r], at the same time, each in a host thread of its own, and
  // returns when all have ended. Where one throws, or ends while others wait for it, all end, and an Error
  // says which one it was. Under the caller's NoGrad.
  void run(const std::vector<bool>& runs, const std::function<void(size_t)>& work);

  // The group as rank r sees it, for use in the thread of its work(r); an error elsewhere. `threads` stays
  // alive with it.
  static std::shared_ptr<Group> of_rank(std::shared_ptr<ThreadGroup> threads, size_t r);

 private:
  class Rank;
  enum class State { absent, running, waiting, ended };

  // What a rank brings to a rendezvous: a number to gather, or values to add up.
  struct Contribution {
    int64_t number = 0;
    Tensor values;
  };

  // Waits until every rank that runs has brought something, and returns all their numbers.
  std::vector<int64_t> rendezvous(size_t r, const Contribution& contribution);
  void end(size_t r, const std::string& error);
  void settle();
  void complete();
  std::string why_not() const;

  const std::vector<Device> devices_;
  Allreduce allreduce_;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<State> states_;
  std::vector<Contribution> contributions_;
  std::vector<int64_t> numbers_;     // by rank, of the last rendezvous
  int64_t rendezvous_ = 0;           // so far
  int64_t reductions_ = 0;           // that all ranks have passed in this run
  std::vector<std::string> errors_;  // by rank: what ended it in this run
  std::string failure_;              // why the ranks that waited were released without a rendezvous
};

}  // namespace lockstep::collective
