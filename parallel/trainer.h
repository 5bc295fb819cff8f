// Data-parallel training, a step at a time: every replica computes the summed loss of its shard and goes back
// through it, the gradients are summed over the replicas, and every replica applies the same update, divided
// once by the rows of the whole batch. Nothing here waits for a device, except to stay two batches ahead at
// most.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/stream.h"
#include "nn/data/device_data.h"
#include "parallel/data_parallel.h"

namespace lockstep::parallel {

// How to train, beside the learning rate, which is given anew at each step.
struct TrainerSettings {
  nn::MakeOptimizer make_optimizer;  // called once a replica
  collective::Algorithm algorithm = collective::ring;
  float label_smoothing = 0;
  float max_gradient_norm = 0;  // longer gradients are clipped to it (nn/clip.h); 0: none are
  BatchStatistics statistics = BatchStatistics::shard;
  DType reduce_in = DType::float32;  // or bfloat16 (DataParallelOptions)
};

class Trainer {
 public:
  // One replica a device, made by `make`, with the values of replica 0 (DataParallel).
  Trainer(const MakeModule& make, const std::vector<Device>& devices, const TrainerSettings& settings);

  // One step on a batch that is split into a shard per device (some may be empty, but not all). Throws before
  // a weight changes where the model has fewer outputs than the data have classes.
  void step(const std::vector<data::LabelledBatch>& shards, float learning_rate);

  // Adds a batch, split likewise, to the next step, which then is one on the rows of both: their summed
  // gradients, divided by all rows, after one allreduce. So a step can have more rows than fit into memory.
  // Only batch norm sees the difference, as it normalises each batch by itself.
  void accumulate(const std::vector<data::LabelledBatch>& shards);

  // What happened since the last report: waits for the steps so far. Throws where a label was no class, and
  // between accumulate() and step().
  struct Report {
    std::vector<double> losses;    // the mean loss of each step, with label smoothing where that is set
    int64_t rows = 0;              // rows seen
    int64_t correct = 0;           // rows whose largest logit was the label's
    double allreduce_seconds = 0;  // from the end of backward on device 0 to the summed gradients
  };
  Report report();

  // As nn::first_not_finite: of the parameters, of the optimizer's memory, and of every replica's buffers.
  std::optional<std::string> first_not_finite();

  DataParallel& net() { return net_; }
  const std::vector<std::shared_ptr<nn::Module>>& replicas() const { return net_.replicas(); }
  ReplicaOptimizers& optimizers() { return optimizers_; }

 private:
  static constexpr size_t kInFlight = 2;
  static constexpr int64_t kLossSlots = 1024;

  struct InFlight;

  InFlight& compute(const std::vector<data::LabelledBatch>& shards);
  void record_done(InFlight& flight);
  void wait_for_batch(size_t slot);
  void collect();

  DataParallel net_;
  ReplicaOptimizers optimizers_;
  float label_smoothing_, max_gradient_norm_;

  // A batch in flight: when it is over on each device, and, where it ends a step, the allreduce's start and
  // end on device 0.
  struct InFlight {
    std::vector<Event> done;
    Event reduce_begin, reduce_end;
    bool pending = false, reduces = false;
  };
  std::vector<InFlight> in_flight_;
  size_t next_slot_ = 0;

  std::vector<Tensor> losses_;      // a device: the summed loss of its shard, a slot a step
  std::vector<Tensor> correct_;     // a device: right answers since the last report
  std::vector<int64_t> step_rows_;  // rows of each step that is done and has a loss slot
  int64_t rows_ = 0;                // accumulated for the next step
  Report gathered_;
};

// Called before each batch of an evaluation with the rows that are done; false ends it.
using WatchRows = std::function<bool(int64_t rows)>;

// Right answers over the first `rows` rows of the data's order, in batches of `batch_size`, which are dealt
// out to the replicas in turn; data[r] is on device r. So every batch is the same computation for every
// number of replicas, and so is the count, where their buffers are equal (DataParallel::combine_buffers).
// None where `watch` ended it. Throws where the model has fewer outputs than the data have classes, or a
// label is no class, and nn::NotFinite, naming the row, where there is no largest output.
std::optional<int64_t> count_correct(const DataParallel& net, const std::vector<data::DeviceData>& data,
                                     int64_t rows, int64_t batch_size, const WatchRows& watch = nullptr);

}  // namespace lockstep::parallel
