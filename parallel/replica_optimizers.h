// An optimizer for each replica.
#pragma once

#include <memory>
#include <vector>

#include "nn/optimizer.h"
#include "parallel/data_parallel.h"

namespace lockstep::parallel {

// Equal gradients and the same update keep the replicas bitwise equal.
class ReplicaOptimizers {
 public:
  ReplicaOptimizers(DataParallel& net, const nn::MakeOptimizer& make);
  // The same step of every replica, on the sums of the gradients times `gradient_scale`, shortened to a norm
  // of at most `max_norm` unless that is 0. Throws where some are not summed (the last backward ran under
  // no_sync(), or threw, or reduce_gradients() was not called).
  void step(float learning_rate, float gradient_scale = 1, float max_norm = 0);
  std::vector<std::unique_ptr<nn::Optimizer>>& optimizers() { return optimizers_; }

 private:
  DataParallel& net_;
  std::vector<std::unique_ptr<nn::Optimizer>> optimizers_;
};

}  // namespace lockstep::parallel
