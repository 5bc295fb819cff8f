#include "nn/layers.h"

#include <fmt/format.h>

#include "nn/functional.h"

namespace lockstep::nn {
namespace {

std::string describe_window(const Window& window, int default_stride) {
  std::string text;
  if (window.stride != default_stride) text += fmt::format(", stride {}", window.stride);
  if (window.padding != 0) text += fmt::format(", padding {}", window.padding);
  return text;
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, const Device& device)
    : weight_(add_parameter("weight", {out, in}, device, {in, out})),
      bias_(add_parameter("bias", {out}, device)) {}

Tensor Linear::forward(const Tensor& x) {
  return linear(x, weight_, bias_);
}

std::string Linear::describe() const {
  return fmt::format("Linear({} -> {})", weight_.dim(1), weight_.dim(0));
}

Conv2d::Conv2d(int64_t in, int64_t out, int kernel, const Device& device, Window window)
    : window_(window),
      weight_(add_parameter("weight", {out, kernel, kernel, in}, device,
                            {in * kernel * kernel, out * kernel * kernel})),
      bias_(add_parameter("bias", {out}, device)) {}

Tensor Conv2d::forward(const Tensor& x) {
  return conv2d(x, weight_, bias_, window_.stride, window_.padding);
}

std::string Conv2d::describe() const {
  return fmt::format("Conv2d({} -> {}, {}x{}{})", weight_.dim(3), weight_.dim(0), weight_.dim(1),
                     weight_.dim(2), describe_window(window_, 1));
}

Tensor MaxPool2d::forward(const Tensor& x) {
  return max_pool2d(x, kernel_, window_.stride, window_.padding);
}

std::string MaxPool2d::describe() const {
  return fmt::format("MaxPool2d({0}x{0}{1})", kernel_, describe_window(window_, kernel_));
}

Tensor AvgPool2d::forward(const Tensor& x) {
  return avg_pool2d(x, kernel_, window_.stride, window_.padding);
}

std::string AvgPool2d::describe() const {
  return fmt::format("AvgPool2d({0}x{0}{1})", kernel_, describe_window(window_, kernel_));
}

Tensor ReLU::forward(const Tensor& x) {
  return relu(x);
}
Tensor Sigmoid::forward(const Tensor& x) {
  return sigmoid(x);
}
Tensor Flatten::forward(const Tensor& x) {
  return flatten(x);
}

}  // namespace lockstep::nn
