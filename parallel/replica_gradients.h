// The gradients of all replicas: one arena per replica, which backward adds to and one allreduce sums. What
// has been summed lies in every arena, so before more is added all copies but one are dropped.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "parallel/collective/allreduce.h"

namespace lockstep::parallel {

class ReplicaGradients {
 public:
  // parameters[r] are those of replica r, on devices[r]; their gradients become ranges of arena r. With
  // `reduce_in` bfloat16, sums are of rounded gradients and are rounded, and half as many bytes travel. With
  // `check` every sum is held against the serial one, which waits for the devices (collective/oracle.h).
  ReplicaGradients(std::vector<std::vector<Tensor>> parameters, const std::vector<Device>& devices,
                   collective::Algorithm algorithm, DType reduce_in = DType::float32, bool check = false);

  void zero();
  // Call before every backward: makes the arenas take what it adds.
  void prepare();
  // Sums what the replicas have added since zero() or the last reduce() into all of them, on top of what was
  // summed before. A parameter that no replica used since zero() then has no gradient (grad() is undefined).
  void reduce();

  enum class State {
    zeroed,  // since zero() nothing was added
    local,   // each arena has what its own replica added, and arena 0 also what was summed before
    summed,  // each arena has the sum over all replicas
  };
  State state() const { return state_; }

  // All gradients of a replica, the last layer's first; empty where there are no parameters.
  const std::vector<Tensor>& arenas() const { return arenas_; }

 private:
  void allreduce();
  void sum(const std::vector<Tensor>& data);

  std::vector<std::vector<Tensor>> parameters_;
  std::vector<std::vector<Tensor>> ranges_;  // by replica and parameter: its place in the arena
  std::vector<Tensor> arenas_;
  std::vector<Tensor> rounded_;  // what travels instead of the arenas; empty where they do
  collective::Algorithm algorithm_;
  bool check_;
  collective::Allreduce allreduce_;
  State state_ = State::zeroed;
};

}  // namespace lockstep::parallel
