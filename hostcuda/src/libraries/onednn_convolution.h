// Convolutions on oneDNN. Activations keep the caller's layout; the weights are reordered, in the caller's
// workspace, into the layout that oneDNN chooses: with the weights in the caller's own [out, kh, kw, in] it
// has no vectorised code at all.
#pragma once

#include <memory>

#include "hostcuda/src/libraries/convolution.h"

namespace hostcuda::onednn {

// Whether oneDNN has code for it on this processor that multiplies bfloat16, rather than emulates that.
bool multiplies_bfloat16(const ConvolutionProblem& problem);

class OnednnConvolution final : public Convolution {
 public:
  // Throws dnnl::error where oneDNN has no code for it.
  explicit OnednnConvolution(const ConvolutionProblem& problem);
  ~OnednnConvolution() override;
  size_t workspace_bytes() const override;

 private:
  void compute(float alpha, ConvolutionData data, void* workspace, float beta) const override;

  struct Prepared;
  const std::unique_ptr<const Prepared> prepared_;
};

}  // namespace hostcuda::onednn
