#include "nn/layers.h"

#include <fmt/format.h>

#include "kernels/check.h"

namespace lockstep::nn {
namespace {

std::string describe_window(const Window& window, int default_stride) {
  std::string text;
  if (window.stride != default_stride) text += fmt::format(", stride {}", window.stride);
  if (window.padding != 0) text += fmt::format(", padding {}", window.padding);
  return text;
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, const Device& device, Bias bias)
    : weight_(add_parameter("weight", {out, in}, device, {in, out})),
      bias_(bias == Bias::learned ? &add_parameter("bias", {out}, device) : nullptr) {}

Tensor Linear::forward(const Tensor& x) {
  return linear(x, weight_, bias_ != nullptr ? *bias_ : Tensor());
}

std::string Linear::describe() const {
  return fmt::format("Linear({} -> {}{})", weight_.dim(1), weight_.dim(0),
                     bias_ == nullptr ? ", no bias" : "");
}

Conv2d::Conv2d(int64_t in, int64_t out, int kernel, const Device& device, Window window, Bias bias)
    : window_(window),
      weight_(add_parameter("weight", {out, kernel, kernel, in}, device,
                            {in * kernel * kernel, out * kernel * kernel})),
      bias_(bias == Bias::learned ? &add_parameter("bias", {out}, device) : nullptr) {}

Tensor Conv2d::forward(const Tensor& x) {
  return conv2d(x, weight_, bias_ != nullptr ? *bias_ : Tensor(), window_.stride, window_.padding);
}

std::string Conv2d::describe() const {
  return fmt::format("Conv2d({} -> {}, {}x{}{}{})", weight_.dim(3), weight_.dim(0), weight_.dim(1),
                     weight_.dim(2), describe_window(window_, 1), bias_ == nullptr ? ", no bias" : "");
}

BatchNorm2d::BatchNorm2d(int64_t channels, const Device& device, Activation activation)
    : activation_(activation),
      weight_(add_parameter("weight", {channels}, device, {.constant = 1})),
      bias_(add_parameter("bias", {channels}, device)),
      running_mean_(add_buffer("running_mean", {channels}, device, 0)),
      running_var_(add_buffer("running_var", {channels}, device, 1)) {}

Tensor BatchNorm2d::forward(const Tensor& x, const Tensor& addend) {
  return batch_norm(x, {weight_, bias_, running_mean_, running_var_}, training(), activation_, addend,
                    replicas_);
}

std::string BatchNorm2d::describe() const {
  return fmt::format("BatchNorm2d({}{})", weight_.dim(0), activation_ == Activation::relu ? ", ReLU" : "");
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

Tensor AdaptiveAvgPool2d::forward(const Tensor& x) {
  return adaptive_avg_pool2d(x, height_, width_);
}

std::string AdaptiveAvgPool2d::describe() const {
  return fmt::format("AdaptiveAvgPool2d({}x{})", height_, width_);
}

Dropout::Dropout(float probability, uint64_t seed)
    : probability_(probability), seed_(seed), step_(add_counter("step")) {
  if (!(probability >= 0 && probability < 1))
    throw Error(fmt::format("Dropout: probability {}: use at least 0 and less than 1", probability));
}

Tensor Dropout::forward(const Tensor& x) {
  if (!training()) return x;
  // Each replica has a range of its own in the sequences of one seed.
  const auto first = static_cast<uint64_t>(replica()) << 48;
  return dropout(x, probability_, seed_, first + static_cast<uint64_t>(step_++));
}

std::string Dropout::describe() const {
  return fmt::format("Dropout({})", probability_);
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
