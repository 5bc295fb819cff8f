// Dropout.
#pragma once

#include "nn/module.h"

namespace lockstep::nn {

// Elements set to 0 with `probability`, in [0, 1), by (seed, step, index), and the others divided by 1 -
// probability.
Tensor dropout(const Tensor& x, float probability, uint64_t seed, uint64_t step);

// In training, sets elements to 0 with the given probability and scales the others so that the mean stays.
// The n-th call draws by (seed, n, replica()): the replicas of a DataParallel drop other elements, whatever
// devices carry them, and replica 0 what one device does. Layers that should differ need different seeds.
class Dropout : public Module {
 public:
  Dropout(float probability, uint64_t seed);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  float probability_;
  uint64_t seed_;
  int64_t& step_;
};

}  // namespace lockstep::nn
