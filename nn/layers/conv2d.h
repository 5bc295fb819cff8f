// Convolution.
#pragma once

#include <optional>

#include "kernels/conv/conv.h"
#include "nn/layers/bias.h"
#include "nn/layers/window.h"
#include "nn/module.h"

namespace lockstep::nn {

// x: [batch, height, width, in], weight: [out, kh, kw, in], bias: [out] or undefined for none; y: [batch,
// height', width', out] with height' = (height + 2 padding - kh) / stride + 1. Throws where the kernel is
// larger than the padded image.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride = 1, int padding = 0);

class Conv2d : public Module {
 public:
  Conv2d(int64_t in, int64_t out, int kernel, const Device& device, Window window = {},
         Bias bias = Bias::learned);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  // The sizes of the last forward pass, and whether its input wanted a gradient.
  struct Use {
    kernels::Conv2dShape shape;
    bool input_needs_gradient;
  };
  const std::optional<Use>& last_use() const { return last_use_; }

 private:
  std::optional<Use> last_use_;
  Window window_;
  Tensor& weight_;  // [out, kernel, kernel, in]
  Tensor* bias_;    // [out], or null
};

}  // namespace lockstep::nn
