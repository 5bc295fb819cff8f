#include "parallel/replica_gradients.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/check.h"
#include "kernels/elementwise.h"
#include "nn/optimizer.h"
#include "parallel/collective/oracle.h"

namespace lockstep::parallel {

ReplicaGradients::ReplicaGradients(std::vector<std::vector<Tensor>> parameters,
                                   const std::vector<Device>& devices, collective::Algorithm algorithm,
                                   DType reduce_in, bool check)
    : parameters_(std::move(parameters)),
      algorithm_(algorithm),
      check_(check),
      allreduce_(devices, algorithm) {
  for (const std::vector<Tensor>& replica : parameters_) {
    if (!replica.empty()) arenas_.push_back(nn::gradient_arena(replica));
    ranges_.emplace_back();
    for (const Tensor& parameter : replica) ranges_.back().push_back(parameter.grad());
  }
  if (reduce_in == DType::float32 || arenas_.size() < 2) return;
  if (reduce_in != DType::bfloat16)
    throw Error(
        fmt::format("gradients cannot be reduced in {}: use float32 or bfloat16", name_of(reduce_in)));
  for (const Tensor& arena : arenas_)
    rounded_.push_back(Tensor::empty(arena.shape(), arena.device(), DType::bfloat16));
}

void ReplicaGradients::zero() {
  for (const Tensor& arena : arenas_) arena.set_to_zero();
  for (size_t r = 0; r < parameters_.size(); ++r)
    for (size_t p = 0; p < parameters_[r].size(); ++p) parameters_[r][p].set_zero_grad(ranges_[r][p]);
  state_ = State::zeroed;
}

void ReplicaGradients::prepare() {
  if (state_ == State::summed)  // the sum so far counts once
    for (size_t r = 1; r < arenas_.size(); ++r) arenas_[r].set_to_zero();
  for (size_t r = 0; r < parameters_.size(); ++r)
    for (size_t p = 0; p < parameters_[r].size(); ++p) {
      if (parameters_[r][p].grad().defined()) continue;
      ranges_[r][p].set_to_zero();
      parameters_[r][p].set_zero_grad(ranges_[r][p]);
    }
  state_ = State::local;
}

void ReplicaGradients::reduce() {
  if (state_ != State::local) return;
  allreduce();
  for (size_t p = 0; p < parameters_[0].size(); ++p) {
    const bool used = std::any_of(parameters_.begin(), parameters_.end(),
                                  [p](const auto& replica) { return replica[p].grad_written(); });
    if (used) continue;
    for (const std::vector<Tensor>& replica : parameters_) replica[p].set_grad(Tensor());
  }
  state_ = State::summed;
}

void ReplicaGradients::sum(const std::vector<Tensor>& data) {
  if (!check_) return allreduce_(data);
  const collective::Oracle oracle(algorithm_(static_cast<int>(data.size()), data[0].size()), data);
  allreduce_(data);
  oracle.compare(data);
}

void ReplicaGradients::allreduce() {
  if (arenas_.empty()) return;
  if (rounded_.empty()) return sum(arenas_);
  for (size_t r = 0; r < arenas_.size(); ++r) {
    const DeviceGuard guard(arenas_[r].device());
    kernels::cast(arenas_[r].data<float>(), rounded_[r].data<__nv_bfloat16>(), arenas_[r].size(),
                  arenas_[r].device().stream());
  }
  sum(rounded_);
  for (size_t r = 0; r < arenas_.size(); ++r) {
    const DeviceGuard guard(arenas_[r].device());
    kernels::cast(rounded_[r].data<__nv_bfloat16>(), arenas_[r].data<float>(), arenas_[r].size(),
                  arenas_[r].device().stream());
    arenas_[r].mark_overwritten();
  }
}

}  // namespace lockstep::parallel
