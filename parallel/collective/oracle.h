// Holds an allreduce against the serial one (serial.h), bit for bit: the replicas of a wrong one may well
// agree with each other.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "parallel/collective/plan.h"

namespace lockstep::collective {

// What the buffers should become when `plan` sums them: taken before the sum. Waits for the devices. float32
// or bfloat16.
class Oracle {
 public:
  Oracle(const Plan& plan, const std::vector<Tensor>& data);
  // Throws Error, naming the first rank and element that differ: "rank 2 has 1.5 in element 17, the plan
  // gives 1.25".
  void compare(const std::vector<Tensor>& data) const;

 private:
  std::vector<std::vector<float>> expected_;  // by rank
};

}  // namespace lockstep::collective
