#include "nn/functional.h"

#include <fmt/format.h>

#include "core/autograd.h"
#include "kernels/adaptive_pool.h"
#include "kernels/bias.h"
#include "kernels/check.h"
#include "kernels/conv/conv.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/pool.h"
#include "kernels/random.h"
#include "kernels/reduce.h"
#include "kernels/softmax.h"
#include "nn/operation.h"

namespace lockstep::nn {
namespace {

void check_bias(const char* operation, const Tensor& bias, int64_t channels) {
  if (bias.shape() != Shape{channels})
    throw Error(
        fmt::format("{}: a bias of shape {} for {} channels", operation, to_string(bias.shape()), channels));
}

Tensor bias_gradient(const Tensor& gradient, int64_t channels) {
  const Tensor db = Tensor::empty({channels}, gradient.device());
  for_float_type("bias_gradient", gradient.dtype(), [&]<typename T>(T) {
    kernels::bias_gradient(gradient.data<T>(), db.data<float>(), gradient.size() / channels,
                           static_cast<int>(channels), gradient.device().stream());
  });
  return db;
}

kernels::Pool2dShape pool_shape(const char* operation, const Tensor& x, int kernel, int stride, int padding) {
  check_rank(operation, x, 4);
  if (kernel < 1 || stride < 1 || padding < 0 || padding >= kernel)
    throw Error(fmt::format(
        "{}: kernel {}, stride {}, padding {}: kernel and stride must be positive and the padding "
        "smaller than the kernel",
        operation, kernel, stride, padding));
  const kernels::Pool2dShape shape{x.dim(0),
                                   static_cast<int>(x.dim(1)),
                                   static_cast<int>(x.dim(2)),
                                   static_cast<int>(x.dim(3)),
                                   kernel,
                                   stride,
                                   padding};
  if (shape.height + 2 * padding < kernel || shape.width + 2 * padding < kernel)
    throw Error(
        fmt::format("{}: a window of {} does not fit into {}", operation, kernel, to_string(x.shape())));
  return shape;
}

Shape pooled(const kernels::Pool2dShape& shape) {
  return {shape.batch, shape.out_height(), shape.out_width(), shape.channels};
}

// A new tensor with the values of x in another floating-point type, without a history; x itself where it has
// that type.
Tensor converted(const Tensor& x, DType to) {
  if (x.dtype() == to) return x;
  const DeviceGuard guard(x.device());
  const Tensor y = Tensor::empty(x.shape(), x.device(), to);
  if (to == DType::bfloat16)
    kernels::cast(x.data<float>(), y.data<__nv_bfloat16>(), x.size(), x.device().stream());
  else
    kernels::cast(x.data<__nv_bfloat16>(), y.data<float>(), x.size(), x.device().stream());
  return y;
}

// What matrix products and convolutions read on a device.
DType operand_type(const Device& device) {
  return device.math().precision == kernels::Precision::bf16 ? DType::bfloat16 : DType::float32;
}

// Both activations remember their output: its values are enough to go back.
template <typename Forward, typename Backward>
Tensor activation(const char* name, Forward forward, Backward backward, const Tensor& x) {
  const DeviceGuard guard(x.device());
  const Tensor y = Tensor::empty(x.shape(), x.device(), x.dtype());
  for_float_type(name, x.dtype(),
                 [&]<typename T>(T) { forward(x.data<T>(), y.data<T>(), x.size(), x.device().stream()); });
  return record(name, y, {x},
                [name, y, backward](const Tensor& dy) {
                  const DeviceGuard here(y.device());
                  const Tensor dx = Tensor::empty(y.shape(), y.device(), y.dtype());
                  for_float_type(name, y.dtype(), [&]<typename T>(T) {
                    backward(y.data<T>(), dy.data<T>(), dx.data<T>(), y.size(), y.device().stream());
                  });
                  return std::vector<Tensor>{dx};
                },
                {{"output", y}});
}

}  // namespace

Tensor cast(const Tensor& x, DType to) {
  if (x.dtype() == to) return x;
  return record("cast", converted(x, to), {x},
                [from = x.dtype()](const Tensor& dy) { return std::vector<Tensor>{converted(dy, from)}; });
}

namespace {

// a b^T, a b or a^T b of matrices of one type, summed in float32.
Tensor product(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b) {
  const int64_t m = a.dim(transpose_a ? 1 : 0), k = a.dim(transpose_a ? 0 : 1),
                n = b.dim(transpose_b ? 0 : 1);
  const Tensor c = Tensor::empty({m, n}, a.device());
  for_float_type("linear", a.dtype(), [&]<typename T>(T) {
    kernels::matmul(a.device().math(), transpose_a, transpose_b, m, n, k, a.data<T>(), b.data<T>(), 0.0f,
                    c.data<float>());
  });
  return c;
}

}  // namespace

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_rank("linear", input, 2);
  check_rank("linear", weight, 2);
  const int64_t rows = input.dim(0), out = weight.dim(0);
  if (weight.dim(1) != input.dim(1))
    throw Error(fmt::format("linear: input {} does not fit weight {}", to_string(input.shape()),
                            to_string(weight.shape())));
  if (bias.defined()) check_bias("linear", bias, out);
  check_device("linear", input, weight, "weight");

  const Device device = input.device();
  const DeviceGuard guard(device);
  const DType type = operand_type(device);
  const Tensor x = cast(input, type);
  const Tensor w = converted(weight.detach(), type);
  const Tensor sums = product(x, false, w, true);
  if (bias.defined())
    kernels::bias_add(sums.data<float>(), bias.data<float>(), rows, static_cast<int>(out), device.stream());

  const bool want_dx = x.requires_grad(), want_dw = weight.requires_grad();
  return record("linear", converted(sums, type), {x, weight, bias},
                [x = x.detach(), w, want_dx, want_dw, want_db = bias.defined(),
                 w_type = weight.dtype()](const Tensor& dy) {
                  const DeviceGuard here(x.device());
                  Tensor dx, dw;
                  if (want_dx) dx = converted(product(dy, false, w, false), x.dtype());
                  if (want_dw) dw = converted(product(dy, true, x, false), w_type);
                  return std::vector<Tensor>{dx, dw, want_db ? bias_gradient(dy, w.dim(0)) : Tensor()};
                },
                {{"input", want_dw ? x : Tensor()}, {"weight", want_dx ? w : Tensor()}});
}

namespace {

template <typename T>
Tensor conv2d_workspace(const Device& device, const kernels::Conv2dShape& shape, kernels::ConvPass pass) {
  return workspace(device, kernels::conv2d_workspace_bytes<T>(device.math(), shape, pass));
}

}  // namespace

Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, int stride, int padding) {
  check_rank("conv2d", input, 4);
  check_rank("conv2d", weight, 4);
  if (stride < 1 || padding < 0)
    throw Error(fmt::format("conv2d: stride {} and padding {}: use a positive stride and no negative padding",
                            stride, padding));
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
  if (shape.height + 2 * padding < shape.kernel_height || shape.width + 2 * padding < shape.kernel_width)
    throw Error(fmt::format("conv2d: weight {} does not fit into {} with padding {}",
                            to_string(weight.shape()), to_string(input.shape()), padding));
  if (bias.defined()) check_bias("conv2d", bias, shape.out_channels);
  check_device("conv2d", input, weight, "weight");

  const Device device = input.device();
  const DeviceGuard guard(device);
  const DType type = operand_type(device);
  const Tensor x = cast(input, type);
  const Tensor w = converted(weight.detach(), type);
  const Tensor y =
      Tensor::empty({shape.batch, shape.out_height(), shape.out_width(), shape.out_channels}, device, type);
  for_float_type("conv2d", type, [&]<typename T>(T) {
    const Tensor scratch = conv2d_workspace<T>(device, shape, kernels::ConvPass::forward);
    kernels::conv2d_forward(device.math(), shape, x.data<T>(), w.data<T>(),
                            bias.defined() ? bias.data<float>() : nullptr, y.data<T>(),
                            scratch.data<uint8_t>());
  });

  const bool want_dx = x.requires_grad(), want_dw = weight.requires_grad();
  return record(
      "conv2d", y, {x, weight, bias},
      [x = x.detach(), w, shape, want_dx, want_dw, want_db = bias.defined(),
       w_type = weight.dtype()](const Tensor& dy) {
        const Device on = x.device();
        const DeviceGuard here(on);
        Tensor dx, dw;
        for_float_type("conv2d", x.dtype(), [&]<typename T>(T) {
          if (want_dx) {
            dx = Tensor::empty(x.shape(), on, x.dtype());
            const Tensor scratch = conv2d_workspace<T>(on, shape, kernels::ConvPass::backward_data);
            kernels::conv2d_backward_data(on.math(), shape, dy.data<T>(), w.data<T>(), dx.data<T>(),
                                          scratch.data<uint8_t>());
          }
          if (want_dw) {
            dw = Tensor::empty(w.shape(), on);
            const Tensor scratch = conv2d_workspace<T>(on, shape, kernels::ConvPass::backward_filter);
            kernels::conv2d_backward_filter(on.math(), shape, x.data<T>(), dy.data<T>(), dw.data<float>(),
                                            scratch.data<uint8_t>());
            dw = converted(dw, w_type);
          }
        });
        return std::vector<Tensor>{dx, dw, want_db ? bias_gradient(dy, shape.out_channels) : Tensor()};
      },
      {{"input", want_dw ? x : Tensor()}, {"weight", want_dx ? w : Tensor()}});
}

Tensor max_pool2d(const Tensor& x, int kernel, int stride, int padding) {
  const auto shape = pool_shape("max_pool2d", x, kernel, stride, padding);
  if (kernel > 16)
    throw Error(fmt::format("max_pool2d: a window of {}: at most 16 fits the stored positions", kernel));
  const DeviceGuard guard(x.device());
  const Tensor y = Tensor::empty(pooled(shape), x.device(), x.dtype());
  const Tensor argmax = Tensor::empty(pooled(shape), x.device(), DType::uint8);
  for_float_type("max_pool2d", x.dtype(), [&]<typename T>(T) {
    kernels::max_pool2d_forward(shape, x.data<T>(), y.data<T>(), argmax.data<uint8_t>(), x.device().stream());
  });
  return record("max_pool2d", y, {x}, [shape, argmax, before = x.shape()](const Tensor& dy) {
    const DeviceGuard here(dy.device());
    const Tensor dx = Tensor::empty(before, dy.device(), dy.dtype());
    for_float_type("max_pool2d", dy.dtype(), [&]<typename T>(T) {
      kernels::max_pool2d_backward(shape, dy.data<T>(), argmax.data<uint8_t>(), dx.data<T>(),
                                   dy.device().stream());
    });
    return std::vector<Tensor>{dx};
  });
}

Tensor avg_pool2d(const Tensor& x, int kernel, int stride, int padding) {
  const auto shape = pool_shape("avg_pool2d", x, kernel, stride, padding);
  const DeviceGuard guard(x.device());
  const Tensor y = Tensor::empty(pooled(shape), x.device(), x.dtype());
  for_float_type("avg_pool2d", x.dtype(), [&]<typename T>(T) {
    kernels::avg_pool2d_forward(shape, x.data<T>(), y.data<T>(), x.device().stream());
  });
  return record("avg_pool2d", y, {x}, [shape, before = x.shape()](const Tensor& dy) {
    const DeviceGuard here(dy.device());
    const Tensor dx = Tensor::empty(before, dy.device(), dy.dtype());
    for_float_type("avg_pool2d", dy.dtype(), [&]<typename T>(T) {
      kernels::avg_pool2d_backward(shape, dy.data<T>(), dx.data<T>(), dy.device().stream());
    });
    return std::vector<Tensor>{dx};
  });
}

Tensor adaptive_avg_pool2d(const Tensor& x, int out_height, int out_width) {
  check_rank("adaptive_avg_pool2d", x, 4);
  if (out_height < 1 || out_width < 1 || x.dim(1) < 1 || x.dim(2) < 1)
    throw Error(fmt::format("adaptive_avg_pool2d: {} to {} x {}: use positive sizes", to_string(x.shape()),
                            out_height, out_width));
  const kernels::AdaptivePool2dShape shape{x.dim(0),
                                           static_cast<int>(x.dim(1)),
                                           static_cast<int>(x.dim(2)),
                                           static_cast<int>(x.dim(3)),
                                           out_height,
                                           out_width};
  const DeviceGuard guard(x.device());
  const Tensor y = Tensor::empty({shape.batch, out_height, out_width, x.dim(3)}, x.device(), x.dtype());
  for_float_type("adaptive_avg_pool2d", x.dtype(), [&]<typename T>(T) {
    kernels::adaptive_avg_pool2d_forward(shape, x.data<T>(), y.data<T>(), x.device().stream());
  });
  return record("adaptive_avg_pool2d", y, {x}, [shape, before = x.shape()](const Tensor& dy) {
    const DeviceGuard here(dy.device());
    const Tensor dx = Tensor::empty(before, dy.device(), dy.dtype());
    for_float_type("adaptive_avg_pool2d", dy.dtype(), [&]<typename T>(T) {
      kernels::adaptive_avg_pool2d_backward(shape, dy.data<T>(), dx.data<T>(), dy.device().stream());
    });
    return std::vector<Tensor>{dx};
  });
}

Tensor dropout(const Tensor& x, float probability, uint64_t seed, uint64_t step) {
  const auto masked = [=](const Tensor& values) {
    const DeviceGuard guard(values.device());
    const Tensor kept = Tensor::empty(values.shape(), values.device(), values.dtype());
    for_float_type("dropout", values.dtype(), [&]<typename T>(T) {
      kernels::dropout(values.data<T>(), kept.data<T>(), values.size(), probability, seed, step,
                       values.device().stream());
    });
    return kept;
  };
  return record("dropout", masked(x), {x},
                [masked](const Tensor& dy) { return std::vector<Tensor>{masked(dy)}; });
}

Tensor add(const Tensor& first, const Tensor& second) {
  if (first.shape() != second.shape())
    throw Error(
        fmt::format("add: shapes {} and {} differ", to_string(first.shape()), to_string(second.shape())));
  check_device("add", first, second, "second one");
  // Of two types the sum has the wider one.
  const DType type = first.dtype() == second.dtype() ? first.dtype() : DType::float32;
  const Tensor a = cast(first, type), b = cast(second, type);
  const DeviceGuard guard(a.device());
  const Tensor y = Tensor::empty(a.shape(), a.device(), type);
  for_float_type("add", type, [&]<typename T>(T) {
    kernels::add(a.data<T>(), b.data<T>(), y.data<T>(), y.size(), a.device().stream());
  });
  return record("add", y, {a, b}, [](const Tensor& dy) { return std::vector<Tensor>{dy, dy}; });
}

Tensor relu(const Tensor& x) {
  return activation(
      "relu", [](auto... arguments) { kernels::relu_forward(arguments...); },
      [](auto... arguments) { kernels::relu_backward(arguments...); }, x);
}

Tensor sigmoid(const Tensor& x) {
  return activation(
      "sigmoid", [](auto... arguments) { kernels::sigmoid_forward(arguments...); },
      [](auto... arguments) { kernels::sigmoid_backward(arguments...); }, x);
}

Tensor flatten(const Tensor& x) {
  if (x.shape().empty()) throw Error("flatten: a tensor without dimensions has no rows");
  int64_t columns = 1;
  for (size_t i = 1; i < x.shape().size(); ++i) columns *= x.shape()[i];
  return x.reshape({x.dim(0), columns});
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction, float label_smoothing) {
  check_rank("cross_entropy", logits, 2);
  if (logits.dim(1) == 0)
    throw Error(fmt::format("cross_entropy: logits of shape {} have no classes", to_string(logits.shape())));
  if (labels.dtype() != DType::int32)
    throw Error(fmt::format("cross_entropy: labels of type {}: use int32, the number of each row's class",
                            name_of(labels.dtype())));
  const int64_t rows = logits.dim(0);
  if (labels.shape() != Shape{rows})
    throw Error(fmt::format("cross_entropy: logits of shape {} but labels of shape {}",
                            to_string(logits.shape()), to_string(labels.shape())));
  check_device("cross_entropy", logits, labels, "labels");
  if (!(label_smoothing >= 0 && label_smoothing <= 1))
    throw Error(fmt::format("cross_entropy: a label smoothing of {}: use 0 to 1", label_smoothing));
  const Device device = logits.device();
  const DeviceGuard guard(device);
  const float factor = reduction == Reduction::mean && rows > 0 ? 1.0f / static_cast<float>(rows) : 1.0f;
  const Tensor row_loss = Tensor::empty({rows}, device);
  // The gradient is made together with the loss: the row is in registers anyway.
  const Tensor dlogits = logits.requires_grad() ? Tensor::empty(logits.shape(), device) : Tensor();
  for_float_type("cross_entropy", logits.dtype(), [&]<typename T>(T) {
    kernels::softmax_cross_entropy(
        logits.data<T>(), labels.data<int32_t>(), rows, static_cast<int>(logits.dim(1)), label_smoothing,
        factor, row_loss.data<float>(), dlogits.defined() ? dlogits.data<float>() : nullptr,
        device.label_fault(), device.stream());
  });
  const Tensor loss = Tensor::empty({1}, device);
  kernels::reduce_sum(row_loss.data<float>(), rows, factor, loss.data<float>(), device.stream());
  return record("cross_entropy", loss, {logits}, [dlogits, type = logits.dtype()](const Tensor& dloss) {
    const DeviceGuard here(dlogits.device());
    const Tensor dx = Tensor::empty(dlogits.shape(), dlogits.device(), type);
    for_float_type("cross_entropy", type, [&]<typename T>(T) {
      kernels::scale_by(dlogits.data<float>(), dloss.data<float>(), dx.data<T>(), dlogits.size(),
                        dlogits.device().stream());
    });
    return std::vector<Tensor>{dx};
  });
}

}  // namespace lockstep::nn
