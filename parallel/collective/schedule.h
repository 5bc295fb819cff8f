// What a plan's transfers must wait for. A plan lists them as if one happened after the other; its schedule
// keeps that order only where two of them touch the same elements and one writes. It deals them out to
// streams, and says where a stream has to wait for another: an event costs more than a small copy.
#pragma once

#include <vector>

#include "parallel/collective/plan.h"

namespace lockstep::collective {

// A piece of work on a stream of the schedule.
struct Task {
  enum class Kind {
    begin,     // what the caller enqueued before, on a rank's own stream
    transfer,  // one of the plan's
    combine,   // all ranks' parts of a slice become one, in all of them (Plan::fused)
    end,       // what the caller enqueues afterwards, on a rank's own stream
  };
  Kind kind;
  int rank;                     // whose device it runs on: the destination's
  Transfer transfer;            // of a combination: the slice alone counts
  int stream = 0;               // index of Schedule::streams
  std::vector<int> after = {};  // tasks of other streams that it waits for
  bool awaited = false;         // a task of another stream waits for it
};

struct Schedule {
  // By stream: the rank on whose device it is. Stream r < ranks is rank r's own, which the caller uses, too.
  std::vector<int> streams;
  // To be enqueued in this order: the begin of every rank first, the end of every rank last.
  std::vector<Task> tasks;
};

Schedule schedule(const Plan& plan);

}  // namespace lockstep::collective
