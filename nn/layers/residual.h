// The residual block of ResNet-18 and -34 (He et al., 2016).
#pragma once

#include "nn/layers/batch_norm.h"
#include "nn/layers/conv2d.h"

namespace lockstep::nn {

// What the input goes through before it is added.
enum class Shortcut {
  identity,           // nothing: the shapes must be equal
  projection,         // a 1x1 convolution with the block's stride
  normed_projection,  // the same, then batch norm
};

struct ResidualOptions {
  int stride = 1;
  Shortcut shortcut = Shortcut::identity;
  Bias bias = Bias::learned;  // of all its convolutions
};

// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), both 3x3 convolutions padded and the first one with
// the stride; conv3 (and bn3) are the shortcut's. Throws where output and shortcut could not be added.
class Residual : public Module {
 public:
  Residual(int64_t in, int64_t out, const Device& device, const ResidualOptions& options = {});
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  std::shared_ptr<Conv2d> conv1_, conv2_, conv3_;
  std::shared_ptr<BatchNorm2d> bn1_, bn2_, bn3_;  // what the shortcut does not have is null
  std::string description_;
};

}  // namespace lockstep::nn
