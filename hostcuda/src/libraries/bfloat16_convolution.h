// A bfloat16 convolution where oneDNN has no code for it, or where the result is scaled or added to: operands
// become floats, the float convolution runs, and its result is rounded, once.
#pragma once

#include "hostcuda/src/libraries/convolution.h"

namespace hostcuda {

class Bfloat16Convolution final : public Convolution {
 public:
  explicit Bfloat16Convolution(const ConvolutionProblem& problem);
  // None: who asks for a workspace does not know alpha and beta yet. The floats are the worker's own.
  size_t workspace_bytes() const override { return 0; }

 private:
  void compute(float alpha, ConvolutionData data, void* workspace, float beta) const override;

  const Convolution& float_convolution_;
};

}  // namespace hostcuda
