// Replicas in host threads of their own, for what waits in the middle for the others: a batch norm whose
// statistics are those of all replicas. It is a rendezvous: each replica brings its tensor and waits; the
// last one to come enqueues the allreduce for all, and all go on. A replica that throws, or ends, releases
// those that wait for it, so waiting needs no deadline.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nn/batch_statistics.h"
#include "parallel/collective/allreduce.h"

namespace lockstep::parallel {

class ReplicaThreads {
 public:
  explicit ReplicaThreads(const std::vector<Device>& devices, Algorithm algorithm = ring);

  // Calls work(r) for every replica with runs[r], at the same time, and returns when all have ended. Where
  // one throws, or ends while others wait for it, all end, and an Error says which replica it was. Under the
  // caller's NoGrad.
  void run(const std::vector<bool>& runs, const std::function<void(size_t)>& work);

  // For the batch norms of replica r, in its thread; an error elsewhere. `threads` stays alive with it.
  static std::shared_ptr<nn::ReplicaStatistics> statistics_of(std::shared_ptr<ReplicaThreads> threads,
                                                              size_t r);

 private:
  class Seat;
  enum class State { absent, running, waiting, ended };

  // What a replica brings to a meeting: a number of rows, or values to add up.
  struct Contribution {
    int64_t rows = 0;
    Tensor values;
  };

  // Waits until every replica that runs has brought something, and returns all their rows.
  std::vector<int64_t> meet(size_t r, const Contribution& contribution);
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
  std::vector<int64_t> rows_;  // by replica, of the last meeting
  int64_t meetings_ = 0;
  int64_t norms_ = 0;                // that all replicas have passed in this run
  std::vector<std::string> errors_;  // by replica: what ended it in this run
  std::string failure_;              // why the replicas that waited were released without a meeting
};

}  // namespace lockstep::parallel
