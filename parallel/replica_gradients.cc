#include "parallel/replica_gradients.h"

#include <algorithm>

#include "kernels/check.h"
#include "nn/optimizer.h"

namespace lockstep::parallel {
namespace {

void set_to_zero(const Tensor& tensor) {
  const DeviceGuard guard(tensor.device());
  LOCKSTEP_CUDA(cudaMemsetAsync(tensor.data<float>(), 0, tensor.bytes(), tensor.device().stream()));
}

}  // namespace

ReplicaGradients::ReplicaGradients(std::vector<std::vector<Tensor>> parameters,
                                   const std::vector<Device>& devices, Algorithm algorithm)
    : parameters_(std::move(parameters)), allreduce_(devices, algorithm) {
  for (const std::vector<Tensor>& replica : parameters_) {
    if (!replica.empty()) arenas_.push_back(nn::gradient_arena(replica));
    ranges_.emplace_back();
    for (const Tensor& parameter : replica) ranges_.back().push_back(parameter.grad());
  }
}

void ReplicaGradients::zero() {
  for (const Tensor& arena : arenas_) set_to_zero(arena);
  for (size_t r = 0; r < parameters_.size(); ++r)
    for (size_t p = 0; p < parameters_[r].size(); ++p) parameters_[r][p].set_grad(ranges_[r][p]);
  reduced_ = true;
}

void ReplicaGradients::prepare() {
  if (reduced_)  // the sum so far counts once
    for (size_t r = 1; r < arenas_.size(); ++r) set_to_zero(arenas_[r]);
  for (size_t r = 0; r < parameters_.size(); ++r)
    for (size_t p = 0; p < parameters_[r].size(); ++p) {
      if (parameters_[r][p].grad().defined()) continue;
      set_to_zero(ranges_[r][p]);
      parameters_[r][p].set_grad(ranges_[r][p]);
    }
  reduced_ = false;
}

void ReplicaGradients::reduce() {
  if (reduced_) return;
  if (!arenas_.empty()) allreduce_(arenas_);
  for (size_t p = 0; p < parameters_[0].size(); ++p) {
    const bool used = std::any_of(parameters_.begin(), parameters_.end(),
                                  [p](const auto& replica) { return replica[p].grad_written(); });
    if (used) continue;
    for (const std::vector<Tensor>& replica : parameters_) replica[p].set_grad(Tensor());
  }
  reduced_ = true;
}

}  // namespace lockstep::parallel
