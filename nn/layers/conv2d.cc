#include "nn/layers/conv2d.h"

#include <cstdio>
#include <type_traits>

#include "core/autograd.h"
#include "nn/layers/cast.h"
#include "nn/operation.h"

namespace lockstep::nn {

namespace {

// Calls run(workspace): once, unless cuDNN declines what it had promised. Then the pass goes another way from
// now on, with another workspace.
template <typename T, typename Run>
void run_pass(const Device& device, const kernels::Conv2dShape& shape, kernels::ConvPass pass, Run run) {
  for (bool done = false; !done;) {
    const Tensor scratch = workspace(device, kernels::conv2d_workspace_bytes<T>(device.math(), shape, pass));
    try {
      run(scratch.data<uint8_t>());
      done = true;
    } catch (const kernels::ConvDeclined& declined) {
      const kernels::ConvChoice next =
          kernels::conv2d_choice(device.math(), shape, pass, !std::is_same_v<T, float>);
      fmt::print(stderr, "Conv2d({} -> {}, {}x{}): {}; going on with {}\n", shape.in_channels,
                 shape.out_channels, shape.kernel_height, shape.kernel_width, declined.what(),
                 next.path == "cuDNN" ? "its next algorithm" : next.path);
    }
  }
}

kernels::Conv2dShape conv2d_shape(const Tensor& input, const Tensor& weight, int stride, int padding) {
  check_rank("conv2d", input, 4);
  check_rank("conv2d", weight, 4);
  if (weight.dim(3) != input.dim(3))
    throw Error(fmt::format("conv2d: input {} has {} channels, weight {} expects {}",
                            to_string(input.shape()), input.dim(3), to_string(weight.shape()),
                            weight.dim(3)));
  const kernels::Conv2dShape shape{input.dim(0),
                                   static_cast<int>(input.dim(1)),
                                   static_cast<int>(input.dim(2)),
                                   static_cast<int>(input.dim(3)),
                                   static_cast<int>(weight.dim(0)),
                                   static_cast<int>(weight.dim(1)),
                                   static_cast<int>(weight.dim(2)),
                                   stride,
                                   padding};
  kernels::check_conv2d("conv2d", shape);
  return shape;
}

}  // namespace

Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, int stride, int padding) {
  const kernels::Conv2dShape shape = conv2d_shape(input, weight, stride, padding);
  if (bias.defined()) check_bias("conv2d", bias, shape.out_channels);
  check_device("conv2d", input, weight, "weight");

  const Device device = input.device();
  const DeviceGuard guard(device);
  const DType type = operand_type(device);
  const Tensor x = cast(input, type);
  const Tensor w = converted_weight(weight, type);
  const Tensor y =
      Tensor::empty({shape.batch, shape.out_height(), shape.out_width(), shape.out_channels}, device, type);
  for_float_type("conv2d", type, [&]<typename T>(T) {
    run_pass<T>(device, shape, kernels::ConvPass::forward, [&](void* scratch) {
      kernels::conv2d_forward(device.math(), shape, x.data<T>(), w.data<T>(),
                              bias.defined() ? bias.data<float>() : nullptr, y.data<T>(), scratch);
    });
  });

  const bool want_dx = x.requires_grad(), want_dw = weight.requires_grad();
  return record("conv2d", y, {x, weight, bias},
                [x = x.detach(), w, shape, want_dx, want_dw, weight, bias](const Tensor& dy) {
                  const Device on = x.device();
                  const DeviceGuard here(on);
                  Tensor dx, dw;
                  for_float_type("conv2d", x.dtype(), [&]<typename T>(T) {
                    if (want_dx) {
                      dx = Tensor::empty(x.shape(), on, x.dtype());
                      run_pass<T>(on, shape, kernels::ConvPass::backward_data, [&](void* scratch) {
                        kernels::conv2d_backward_data(on.math(), shape, dy.data<T>(), w.data<T>(),
                                                      dx.data<T>(), scratch);
                      });
                    }
                    if (want_dw) {
                      dw = gradient_memory(weight, DType::float32);
                      run_pass<T>(on, shape, kernels::ConvPass::backward_filter, [&](void* scratch) {
                        kernels::conv2d_backward_filter(on.math(), shape, x.data<T>(), dy.data<T>(),
                                                        dw.data<float>(), scratch);
                      });
                      dw = converted(dw, weight.dtype());
                    }
                  });
                  return std::vector<Tensor>{dx, dw, bias_gradient(dy, bias)};
                },
                {{"input", want_dw ? x : Tensor()}, {"weight", want_dx ? w : Tensor()}});
}

Conv2d::Conv2d(int64_t in, int64_t out, int kernel, const Device& device, Window window, Bias bias)
    : window_(window),
      weight_(add_parameter("weight", {out, kernel, kernel, in}, device,
                            {in * kernel * kernel, out * kernel * kernel})),
      bias_(bias == Bias::learned ? &add_parameter("bias", {out}, device) : nullptr) {}

Tensor Conv2d::forward(const Tensor& x) {
  last_use_ = {conv2d_shape(x, weight_, window_.stride, window_.padding), x.requires_grad()};
  return conv2d(x, weight_, bias_ != nullptr ? *bias_ : Tensor(), window_.stride, window_.padding);
}

std::string Conv2d::describe() const {
  return fmt::format("Conv2d({} -> {}, {}x{}{}{})", weight_.dim(3), weight_.dim(0), weight_.dim(1),
                     weight_.dim(2), describe_window(window_, 1), bias_ == nullptr ? ", no bias" : "");
}

}  // namespace lockstep::nn
