// What a run wants to know of its steps - losses, right answers, the time in allreduce - without waiting for
// a device in each of them: the figures stay on the devices until somebody asks. And what keeps the host from
// running away from the devices: two batches are on their way at most.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"

namespace lockstep::parallel {

struct StepReport {
  std::vector<double> losses;    // the mean loss of each step, with label smoothing where that is set
  int64_t rows = 0;              // rows seen
  int64_t correct = 0;           // rows whose largest logit was the label's
  double allreduce_seconds = 0;  // from the end of backward on device 0 to the summed gradients
};

class StepLog {
 public:
  explicit StepLog(const std::vector<Device>& devices);

  // Waits until one batch at most is on its way.
  void begin_batch();
  // Of the shard on device r: the summed loss, one element, and the right answers among its rows.
  void add(size_t r, const Tensor& loss, const Tensor& logits, const Tensor& labels);
  // Its backward is enqueued.
  void end_batch();

  // Around what sums the gradients.
  void begin_reduction();
  void end_reduction();

  // The batches since the last one were one step of so many rows.
  void end_step(int64_t rows);

  // What happened since the last report: waits for the steps so far. Throws where a label was no class.
  StepReport report();

 private:
  static constexpr int64_t kSteps = 1024;  // that are counted on the devices before the host must look

  // A batch on its way: when its backward is over on each device, and, where it ends a step, when the
  // allreduce begins and ends on device 0.
  struct Batch {
    std::vector<Event> done;
    Event reduction_begin, reduction_end;
    bool pending = false, reduces = false;
  };

  Batch& last() { return batches_[last_]; }
  void wait_for(Batch& batch);
  void collect();

  std::vector<Device> devices_;
  std::array<Batch, 2> batches_;
  size_t last_ = 0;
  bool in_step_ = false;  // a batch has begun since the last step was over

  std::vector<Tensor> losses_;      // per device: the summed loss of its shards, an element for each step
  std::vector<Tensor> correct_;     // per device: right answers
  std::vector<int64_t> step_rows_;  // rows of each step that is over
  StepReport gathered_;             // of what was collected already
};

}  // namespace lockstep::parallel
