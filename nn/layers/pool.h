// Pooling.
#pragma once

#include "nn/layers/window.h"
#include "nn/module.h"

namespace lockstep::nn {

// Square windows over x: [batch, height, width, channels].
Tensor max_pool2d(const Tensor& x, int kernel, int stride, int padding = 0);
Tensor avg_pool2d(const Tensor& x, int kernel, int stride, int padding = 0);

// x: [batch, height, width, channels] to [batch, out_height, out_width, channels]; the windows are PyTorch's.
Tensor adaptive_avg_pool2d(const Tensor& x, int out_height, int out_width);

// Pools over square windows that do not overlap unless another stride is given.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(int kernel) : MaxPool2d(kernel, {kernel, 0}) {}
  MaxPool2d(int kernel, Window window) : kernel_(kernel), window_(window) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  int kernel_;
  Window window_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(int kernel) : AvgPool2d(kernel, {kernel, 0}) {}
  AvgPool2d(int kernel, Window window) : kernel_(kernel), window_(window) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  int kernel_;
  Window window_;
};

// Averages over windows such that the output is `height` x `width`.
class AdaptiveAvgPool2d : public Module {
 public:
  AdaptiveAvgPool2d(int height, int width) : height_(height), width_(width) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  int height_, width_;
};

}  // namespace lockstep::nn
