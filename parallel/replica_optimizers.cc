#include "parallel/replica_optimizers.h"

#include "kernels/check.h"

namespace lockstep::parallel {

ReplicaOptimizers::ReplicaOptimizers(DataParallel& net, const nn::MakeOptimizer& make) : net_(net) {
  for (const auto& replica : net.replicas()) optimizers_.push_back(make(replica->parameters()));
}

void ReplicaOptimizers::step(float learning_rate, float gradient_scale) {
  if (net_.gradients().state() == ReplicaGradients::State::local)
    throw Error(
        "ReplicaOptimizers: the gradients are not summed, since the last backward ran under no_sync() or "
        "failed: let the last one before a step run outside of it, or start again with zero_grad()");
  for (const auto& optimizer : optimizers_) optimizer->step(learning_rate, gradient_scale);
}

}  // namespace lockstep::parallel
