#include "nn/layers/residual.h"

#include <fmt/format.h>

#include "kernels/check.h"

namespace lockstep::nn {
namespace {

void check_addable(int64_t in, int64_t out, const ResidualOptions& options) {
  if (options.shortcut != Shortcut::identity || (in == out && options.stride == 1)) return;
  const auto divided = [&](const char* side) {
    return options.stride == 1 ? std::string(side) : fmt::format("{} / {}", side, options.stride);
  };
  throw Error(
      fmt::format("Residual: its convolutions give [batch, {}, {}, {}], its input is [batch, height, width, "
                  "{}]: they cannot be added without a 1x1 convolution in the shortcut",
                  divided("height"), divided("width"), out, in));
}

}  // namespace

Residual::Residual(int64_t in, int64_t out, const Device& device, const ResidualOptions& options) {
  check_addable(in, out, options);
  const Window same{.stride = 1, .padding = 1};
  const Window strided{.stride = options.stride, .padding = 1};
  conv1_ = std::make_shared<Conv2d>(in, out, 3, device, strided, options.bias);
  bn1_ = std::make_shared<BatchNorm2d>(out, device, Activation::relu);
  conv2_ = std::make_shared<Conv2d>(out, out, 3, device, same, options.bias);
  bn2_ = std::make_shared<BatchNorm2d>(out, device, Activation::relu);
  add_child("conv1", conv1_);
  add_child("bn1", bn1_);
  add_child("conv2", conv2_);
  add_child("bn2", bn2_);
  description_ = fmt::format("Residual({} -> {}", in, out);
  if (options.stride != 1) description_ += fmt::format(", stride {}", options.stride);
  if (options.shortcut != Shortcut::identity) {
    const Window skipping{.stride = options.stride, .padding = 0};
    conv3_ = std::make_shared<Conv2d>(in, out, 1, device, skipping, options.bias);
    add_child("conv3", conv3_);
    description_ += ", 1x1 shortcut";
  }
  if (options.shortcut == Shortcut::normed_projection) {
    bn3_ = std::make_shared<BatchNorm2d>(out, device);
    add_child("bn3", bn3_);
    description_ += " with norm";
  }
  description_ += ")";
}

Tensor Residual::forward(const Tensor& x) {
  Tensor shortcut = x;
  if (conv3_) shortcut = conv3_->forward(shortcut);
  if (bn3_) shortcut = bn3_->forward(shortcut);
  return bn2_->forward(conv2_->forward(bn1_->forward(conv1_->forward(x))), shortcut);
}

std::string Residual::describe() const {
  return description_;
}

}  // namespace lockstep::nn
