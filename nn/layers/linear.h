// The fully connected layer.
#pragma once

#include "nn/layers/bias.h"
#include "nn/module.h"

namespace lockstep::nn {

// y[rows, out] = x[rows, in] w^T + b, with w: [out, in] and b: [out] or undefined for none.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, const Device& device, Bias bias = Bias::learned);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  Tensor& weight_;  // [out, in]
  Tensor* bias_;    // [out], or null
};

}  // namespace lockstep::nn
