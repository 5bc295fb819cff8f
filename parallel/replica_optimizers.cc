#include "parallel/replica_optimizers.h"

#include "kernels/check.h"
#include "nn/clip.h"

namespace lockstep::parallel {

ReplicaOptimizers::ReplicaOptimizers(DataParallel& net, const nn::MakeOptimizer& make) : net_(net) {
  for (const auto& replica : net.replicas()) optimizers_.push_back(make(replica->parameters()));
}

void ReplicaOptimizers::step(float learning_rate, float gradient_scale, float max_norm) {
  if (net_.gradients().state() == ReplicaGradients::State::local)
    throw Error(
        "ReplicaOptimizers: the gradients are not summed, since the last backward ran under no_sync() or "
        "failed: let the last one before a step run outside of it, or start again with zero_grad()");
  const std::vector<Tensor>& arenas = net_.gradients().arenas();
  for (size_t r = 0; r < optimizers_.size(); ++r) {
    nn::ClipGradients clip;
    if (max_norm != 0 && !arenas.empty())
      clip = {nn::gradient_norm(arenas[r], max_norm, gradient_scale), max_norm};
    optimizers_[r]->step(learning_rate, gradient_scale, clip);
  }
}

}  // namespace lockstep::parallel
