// A group of ranks that work on parts of one thing, as one of them sees it: what a batch norm needs, to
// normalise by the statistics of the whole batch. Whoever runs the ranks implements it (thread_group.h).
// Every rank makes the same calls in the same order; a call waits for the others, and throws Error where one
// of them cannot come.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace lockstep::collective {

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;  // 0 .. size() - 1
  virtual int size() const = 0;
  // Every rank's `value`, by rank; of a rank that takes no part, 0.
  virtual std::vector<int64_t> all_gather(int64_t value) = 0;
  // Adds `values`, float32 and of the same shape in each, up over all ranks, in place: all get the same bits.
  // Ordered on the device's stream like any tensor operation.
  virtual void all_reduce(const Tensor& values) = 0;
};

}  // namespace lockstep::collective
