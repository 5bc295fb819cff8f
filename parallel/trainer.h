// Data-parallel training, a step at a time: every replica computes the summed loss of its shard and goes back
// through it, the gradients are summed over the replicas, and every replica applies the same update, divided
// once by the rows of the whole batch. Nothing here waits for a device, except to stay two batches ahead at
// most.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/data/device_data.h"
#include "parallel/data_parallel.h"
#include "parallel/replica_optimizers.h"
#include "parallel/step_log.h"

namespace lockstep::parallel {

// How to train, beside the learning rate, which is given anew at each step.
struct TrainerSettings {
  nn::MakeOptimizer make_optimizer;  // called once a replica
  collective::Algorithm algorithm = collective::ring;
  float label_smoothing = 0;
  float max_gradient_norm = 0;  // longer gradients are clipped to it (nn/clip.h); 0: none are
  BatchStatistics statistics = BatchStatistics::shard;
  DType reduce_in = DType::float32;  // or bfloat16 (DataParallelOptions)
  bool check_allreduce = false;
};

class Trainer {
 public:
  // One replica on each device, made by `make`, with the values of replica 0 (DataParallel).
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
  StepReport report();

  // As nn::first_not_finite: of the parameters, of the optimizer's memory, and of every replica's buffers.
  std::optional<std::string> first_not_finite();

  DataParallel& net() { return net_; }
  const std::vector<std::shared_ptr<nn::Module>>& replicas() const { return net_.replicas(); }
  ReplicaOptimizers& optimizers() { return optimizers_; }

 private:
  std::vector<Tensor> losses_of(const std::vector<Tensor>& logits,
                                const std::vector<data::LabelledBatch>& shards);

  DataParallel net_;
  ReplicaOptimizers optimizers_;
  float label_smoothing_, max_gradient_norm_;
  int64_t rows_ = 0;  // of the step that goes on
  StepLog log_;
};

}  // namespace lockstep::parallel
