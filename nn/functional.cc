#include "nn/functional.h"

#include <fmt/format.h>

#include <numeric>

#include "core/autograd.h"
#include "kernels/adaptive_pool.h"
#include "kernels/batch_norm.h"
#include "kernels/bias.h"
#include "kernels/check.h"
#include "kernels/conv.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/pool.h"
#include "kernels/random.h"
#include "kernels/reduce.h"
#include "kernels/softmax.h"

namespace lockstep::nn {
namespace {

void check_rank(const char* operation, const Tensor& x, size_t rank) {
  if (x.shape().size() != rank)
    throw Error(
        fmt::format("{}: expected {} dimensions, found shape {}", operation, rank, to_string(x.shape())));
}

void check_bias(const char* operation, const Tensor& bias, int64_t channels) {
  if (bias.shape() != Shape{channels})
    throw Error(
        fmt::format("{}: a bias of shape {} for {} channels", operation, to_string(bias.shape()), channels));
}

void check_device(const char* operation, const Tensor& x, const Tensor& other, const char* name) {
  if (x.device() != other.device())
    throw Error(fmt::format("{}: the input is on device {}, the {} on device {}", operation,
                            x.device().index(), name, other.device().index()));
}

// Scratch memory for one call: back in the pool, and so in stream order, as soon as the call is enqueued.
Tensor workspace(const Device& device, size_t bytes) {
  return Tensor::empty({static_cast<int64_t>(bytes)}, device, DType::uint8);
}

Tensor bias_gradient(const Tensor& gradient, int64_t channels) {
  Tensor db = Tensor::empty({channels}, gradient.device());
  kernels::bias_gradient(gradient.data<float>(), db.data<float>(), gradient.size() / channels,
                         static_cast<int>(channels), gradient.device().stream());
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

// Both activations remember their output: its values are enough to go back.
using Forward = void (*)(const float* x, float* y, int64_t n, cudaStream_t stream);
using Backward = void (*)(const float* y, const float* dy, float* dx, int64_t n, cudaStream_t stream);

Tensor activation(const char* name, Forward forward, Backward backward, const Tensor& x) {
  const DeviceGuard guard(x.device());
  const Tensor y = Tensor::empty(x.shape(), x.device());
  forward(x.data<float>(), y.data<float>(), x.size(), x.device().stream());
  return record(name, y, {x}, [y, backward](const Tensor& dy) {
    const DeviceGuard here(y.device());
    const Tensor dx = Tensor::empty(y.shape(), y.device());
    backward(y.data<float>(), dy.data<float>(), dx.data<float>(), y.size(), y.device().stream());
    return std::vector<Tensor>{dx};
  });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_rank("linear", x, 2);
  check_rank("linear", weight, 2);
  const int64_t rows = x.dim(0), in = x.dim(1), out = weight.dim(0);
  if (weight.dim(1) != in)
    throw Error(fmt::format("linear: input {} does not fit weight {}", to_string(x.shape()),
                            to_string(weight.shape())));
  check_bias("linear", bias, out);
  check_device("linear", x, weight, "weight");

  const Device device = x.device();
  const DeviceGuard guard(device);
  const Tensor y = Tensor::empty({rows, out}, device);
  kernels::matmul(device.math(), false, true, rows, out, in, x.data<float>(), weight.data<float>(), 0.0f,
                  y.data<float>());
  kernels::bias_add(y.data<float>(), bias.data<float>(), rows, static_cast<int>(out), device.stream());

  return record("linear", y, {x, weight, bias},
                [x = x.detach(), weight = weight.detach(), want_dx = x.requires_grad()](const Tensor& dy) {
                  const Device on = x.device();
                  const DeviceGuard here(on);
                  const int64_t n = x.dim(0), inputs = x.dim(1), outputs = weight.dim(0);
                  Tensor dx;
                  if (want_dx) {
                    dx = Tensor::empty(x.shape(), on);
                    kernels::matmul(on.math(), false, false, n, inputs, outputs, dy.data<float>(),
                                    weight.data<float>(), 0.0f, dx.data<float>());
                  }
                  const Tensor dw = Tensor::empty(weight.shape(), on);
                  kernels::matmul(on.math(), true, false, outputs, inputs, n, dy.data<float>(),
                                  x.data<float>(), 0.0f, dw.data<float>());
                  return std::vector<Tensor>{dx, dw, bias_gradient(dy, outputs)};
                });
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride, int padding) {
  check_rank("conv2d", x, 4);
  check_rank("conv2d", weight, 4);
  if (stride < 1 || padding < 0)
    throw Error(fmt::format("conv2d: stride {} and padding {}: use a positive stride and no negative padding",
                            stride, padding));
  if (weight.dim(3) != x.dim(3))
    throw Error(fmt::format("conv2d: input {} has {} channels, weight {} expects {}", to_string(x.shape()),
                            x.dim(3), to_string(weight.shape()), weight.dim(3)));
  const kernels::Conv2dShape shape{x.dim(0),
                                   static_cast<int>(x.dim(1)),
                                   static_cast<int>(x.dim(2)),
                                   static_cast<int>(x.dim(3)),
                                   static_cast<int>(weight.dim(0)),
                                   static_cast<int>(weight.dim(1)),
                                   static_cast<int>(weight.dim(2)),
                                   stride,
                                   padding};
  if (shape.height + 2 * padding < shape.kernel_height || shape.width + 2 * padding < shape.kernel_width)
    throw Error(fmt::format("conv2d: weight {} does not fit into {} with padding {}",
                            to_string(weight.shape()), to_string(x.shape()), padding));
  if (bias.defined()) check_bias("conv2d", bias, shape.out_channels);
  check_device("conv2d", x, weight, "weight");

  const Device device = x.device();
  const DeviceGuard guard(device);
  const Tensor y =
      Tensor::empty({shape.batch, shape.out_height(), shape.out_width(), shape.out_channels}, device);
  const Tensor scratch =
      workspace(device, conv2d_workspace_bytes(device.math(), shape, kernels::ConvPass::forward));
  kernels::conv2d_forward(device.math(), shape, x.data<float>(), weight.data<float>(),
                          bias.defined() ? bias.data<float>() : nullptr, y.data<float>(),
                          scratch.data<uint8_t>());

  return record(
      "conv2d", y, {x, weight, bias},
      [x = x.detach(), weight = weight.detach(), shape, want_dx = x.requires_grad(),
       want_db = bias.defined()](const Tensor& dy) {
        const Device on = x.device();
        const DeviceGuard here(on);
        Tensor dx;
        if (want_dx) {
          dx = Tensor::empty(x.shape(), on);
          const Tensor space =
              workspace(on, conv2d_workspace_bytes(on.math(), shape, kernels::ConvPass::backward_data));
          kernels::conv2d_backward_data(on.math(), shape, dy.data<float>(), weight.data<float>(),
                                        dx.data<float>(), space.data<uint8_t>());
        }
        const Tensor dw = Tensor::empty(weight.shape(), on);
        const Tensor space =
            workspace(on, conv2d_workspace_bytes(on.math(), shape, kernels::ConvPass::backward_filter));
        kernels::conv2d_backward_filter(on.math(), shape, x.data<float>(), dy.data<float>(), dw.data<float>(),
                                        space.data<uint8_t>());
        return std::vector<Tensor>{dx, dw, want_db ? bias_gradient(dy, shape.out_channels) : Tensor()};
      });
}

Tensor max_pool2d(const Tensor& x, int kernel, int stride, int padding) {
  const auto shape = pool_shape("max_pool2d", x, kernel, stride, padding);
  if (kernel > 16)
    throw Error(fmt::format("max_pool2d: a window of {}: at most 16 fits the stored positions", kernel));
  const DeviceGuard guard(x.device());
  const Tensor y = Tensor::empty(pooled(shape), x.device());
  const Tensor argmax = Tensor::empty(pooled(shape), x.device(), DType::uint8);
  kernels::max_pool2d_forward(shape, x.data<float>(), y.data<float>(), argmax.data<uint8_t>(),
                              x.device().stream());
  return record("max_pool2d", y, {x}, [shape, argmax, before = x.shape()](const Tensor& dy) {
    const DeviceGuard here(dy.device());
    const Tensor dx = Tensor::empty(before, dy.device());
    kernels::max_pool2d_backward(shape, dy.data<float>(), argmax.data<uint8_t>(), dx.data<float>(),
                                 dy.device().stream());
    return std::vector<Tensor>{dx};
  });
}

Tensor avg_pool2d(const Tensor& x, int kernel, int stride, int padding) {
  const auto shape = pool_shape("avg_pool2d", x, kernel, stride, padding);
  const DeviceGuard guard(x.device());
  const Tensor y = Tensor::empty(pooled(shape), x.device());
  kernels::avg_pool2d_forward(shape, x.data<float>(), y.data<float>(), x.device().stream());
  return record("avg_pool2d", y, {x}, [shape, before = x.shape()](const Tensor& dy) {
    const DeviceGuard here(dy.device());
    const Tensor dx = Tensor::empty(before, dy.device());
    kernels::avg_pool2d_backward(shape, dy.data<float>(), dx.data<float>(), dy.device().stream());
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
  const Tensor y = Tensor::empty({shape.batch, out_height, out_width, x.dim(3)}, x.device());
  kernels::adaptive_avg_pool2d_forward(shape, x.data<float>(), y.data<float>(), x.device().stream());
  return record("adaptive_avg_pool2d", y, {x}, [shape, before = x.shape()](const Tensor& dy) {
    const DeviceGuard here(dy.device());
    const Tensor dx = Tensor::empty(before, dy.device());
    kernels::adaptive_avg_pool2d_backward(shape, dy.data<float>(), dx.data<float>(), dy.device().stream());
    return std::vector<Tensor>{dx};
  });
}

Tensor dropout(const Tensor& x, float probability, uint64_t seed, uint64_t step) {
  const auto masked = [=](const Tensor& values) {
    const DeviceGuard guard(values.device());
    const Tensor kept = Tensor::empty(values.shape(), values.device());
    kernels::dropout(values.data<float>(), kept.data<float>(), values.size(), probability, seed, step,
                     values.device().stream());
    return kept;
  };
  return record("dropout", masked(x), {x},
                [masked](const Tensor& dy) { return std::vector<Tensor>{masked(dy)}; });
}

Tensor add(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape())
    throw Error(fmt::format("add: shapes {} and {} differ", to_string(a.shape()), to_string(b.shape())));
  check_device("add", a, b, "second one");
  const DeviceGuard guard(a.device());
  const Tensor y = Tensor::empty(a.shape(), a.device());
  kernels::add(a.data<float>(), b.data<float>(), y.data<float>(), y.size(), a.device().stream());
  return record("add", y, {a, b}, [](const Tensor& dy) { return std::vector<Tensor>{dy, dy}; });
}

Tensor relu(const Tensor& x) {
  return activation("relu", kernels::relu_forward, kernels::relu_backward, x);
}

Tensor sigmoid(const Tensor& x) {
  return activation("sigmoid", kernels::sigmoid_forward, kernels::sigmoid_backward, x);
}

namespace {

// The statistics of the x of all replicas: each fills its own slot, so that the sum of the slots holds all.
// Returns how many rows that are.
int64_t statistics_of_all(const kernels::BatchNormShape& shape, const Tensor& x, const BatchNormState& state,
                          const Tensor& mean, const Tensor& inverse, ReplicaStatistics& replicas) {
  const Device device = x.device();
  const std::vector<int64_t> rows = replicas.gather(shape.rows);
  const Tensor slots = Tensor::zeros({static_cast<int64_t>(rows.size()), 2, shape.channels}, device);
  {
    const Tensor own = slots.slice(replicas.rank(), replicas.rank() + 1);
    const Tensor scratch = workspace(device, batch_norm_workspace_bytes(shape));
    batch_norm_shard_statistics(shape, x.data<float>(), own.data<float>(), scratch.data<uint8_t>(),
                                device.stream());
  }
  replicas.sum(slots);
  kernels::batch_norm_merge_statistics(shape.channels, {}, rows, slots.data<float>(), mean.data<float>(),
                                       inverse.data<float>(), state.running_mean.data<float>(),
                                       state.running_var.data<float>(), device.stream());
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

}  // namespace

Tensor batch_norm(const Tensor& x, const BatchNormState& state, bool training, Activation activation,
                  const Tensor& addend, const std::shared_ptr<ReplicaStatistics>& replicas) {
  check_rank("batch_norm", x, 4);
  const int64_t channels = x.dim(3);
  if (state.weight.shape() != Shape{channels})
    throw Error(fmt::format("batch_norm: input {} has {} channels, the norm {}", to_string(x.shape()),
                            channels, state.weight.size()));
  check_device("batch_norm", x, state.weight, "norm");
  if (addend.defined()) {
    if (addend.shape() != x.shape())
      throw Error(fmt::format("batch_norm: {} cannot be added to {}", to_string(addend.shape()),
                              to_string(x.shape())));
    check_device("batch_norm", x, addend, "addend");
  }
  const Device device = x.device();
  const DeviceGuard guard(device);
  const kernels::BatchNormShape shape{x.dim(0) * x.dim(1) * x.dim(2), static_cast<int>(channels)};
  const kernels::BatchNormSettings settings;
  const Tensor inverse = Tensor::empty({channels}, device);
  const bool together = training && replicas;
  int64_t rows_of_all = shape.rows;
  Tensor mean = state.running_mean;
  if (together) {
    mean = Tensor::empty({channels}, device);
    rows_of_all = statistics_of_all(shape, x, state, mean, inverse, *replicas);
  } else if (training) {
    mean = Tensor::empty({channels}, device);
    const Tensor scratch = workspace(device, batch_norm_workspace_bytes(shape));
    batch_norm_statistics(shape, settings, x.data<float>(), mean.data<float>(), inverse.data<float>(),
                          state.running_mean.data<float>(), state.running_var.data<float>(),
                          scratch.data<uint8_t>(), device.stream());
  } else {
    kernels::batch_norm_inverse_stddev(state.running_var.data<float>(), settings.epsilon, shape.channels,
                                       inverse.data<float>(), device.stream());
  }
  const bool relu = activation == Activation::relu;
  const Tensor y = Tensor::empty(x.shape(), device);
  batch_norm_normalise(shape, x.data<float>(), mean.data<float>(), inverse.data<float>(),
                       state.weight.data<float>(), state.bias.data<float>(),
                       addend.defined() ? addend.data<float>() : nullptr, relu, y.data<float>(),
                       device.stream());

  const auto mode = training ? kernels::BatchNormMode::batch : kernels::BatchNormMode::running;
  return record("batch_norm", y, {x, state.weight, state.bias, addend},
                [x = x.detach(), y = relu ? y : Tensor(), mean, inverse, weight = state.weight.detach(),
                 shape, mode, rows_of_all, replicas = together ? replicas : nullptr,
                 want_addend = addend.defined() && addend.requires_grad()](const Tensor& dy) {
                  const Device on = x.device();
                  const DeviceGuard here(on);
                  const float* output = y.defined() ? y.data<float>() : nullptr;
                  const Tensor dweight = Tensor::empty(weight.shape(), on);
                  const Tensor dbias = Tensor::empty(weight.shape(), on);
                  {
                    const Tensor scratch = workspace(on, batch_norm_workspace_bytes(shape));
                    batch_norm_gradient_sums(shape, x.data<float>(), output, dy.data<float>(),
                                             mean.data<float>(), inverse.data<float>(), dweight.data<float>(),
                                             dbias.data<float>(), scratch.data<uint8_t>(), on.stream());
                  }
                  Tensor dweight_of_all = dweight, dbias_of_all = dbias;
                  if (replicas) {
                    const Tensor sums = Tensor::empty({2, shape.channels}, on);
                    dweight_of_all = sums.slice(0, 1).reshape(weight.shape());
                    dbias_of_all = sums.slice(1, 2).reshape(weight.shape());
                    dweight_of_all.copy_from(dweight);
                    dbias_of_all.copy_from(dbias);
                    replicas->sum(sums);
                  }
                  const Tensor dx = Tensor::empty(x.shape(), on);
                  Tensor daddend = want_addend ? dy : Tensor();
                  if (want_addend && y.defined()) daddend = Tensor::empty(x.shape(), on);
                  batch_norm_input_gradient(
                      shape, mode, rows_of_all, x.data<float>(), output, dy.data<float>(), mean.data<float>(),
                      inverse.data<float>(), weight.data<float>(), dweight_of_all.data<float>(),
                      dbias_of_all.data<float>(), dx.data<float>(),
                      want_addend && y.defined() ? daddend.data<float>() : nullptr, on.stream());
                  return std::vector<Tensor>{dx, dweight, dbias, daddend};
                });
}

Tensor flatten(const Tensor& x) {
  if (x.shape().empty()) throw Error("flatten: a tensor without dimensions has no rows");
  int64_t columns = 1;
  for (size_t i = 1; i < x.shape().size(); ++i) columns *= x.shape()[i];
  return x.reshape({x.dim(0), columns});
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction, float label_smoothing) {
  check_rank("cross_entropy", logits, 2);
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
  kernels::softmax_cross_entropy(
      logits.data<float>(), labels.data<int32_t>(), rows, static_cast<int>(logits.dim(1)), label_smoothing,
      factor, row_loss.data<float>(), dlogits.defined() ? dlogits.data<float>() : nullptr, device.stream());
  const Tensor loss = Tensor::empty({1}, device);
  kernels::reduce_sum(row_loss.data<float>(), rows, factor, loss.data<float>(), device.stream());
  return record("cross_entropy", loss, {logits}, [dlogits](const Tensor& dloss) {
    const DeviceGuard here(dlogits.device());
    const Tensor dx = Tensor::empty(dlogits.shape(), dlogits.device());
    kernels::scale_by(dlogits.data<float>(), dloss.data<float>(), dx.data<float>(), dlogits.size(),
                      dlogits.device().stream());
    return std::vector<Tensor>{dx};
  });
}

}  // namespace lockstep::nn
