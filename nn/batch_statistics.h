// What a batch norm needs of the other replicas, to normalise by the statistics of the whole batch: one
// object a replica, which whoever runs the replicas implements. Every replica makes the same calls in the
// same order, each from its own host thread; a call waits for the others, and throws Error where one of them
// cannot come.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace lockstep::nn {

class ReplicaStatistics {
 public:
  virtual ~ReplicaStatistics() = default;

  // Which of the replicas this is.
  virtual int rank() const = 0;
  // Every replica's `rows`, by rank.
  virtual std::vector<int64_t> gather(int64_t rows) = 0;
  // Adds `values`, float32 and of the same shape in each, up over all replicas, in place: all get the same
  // bits. Ordered on the device's stream like any tensor operation.
  virtual void sum(const Tensor& values) = 0;
};

}  // namespace lockstep::nn
