#include "nn/layers/pool.h"

#include "core/autograd.h"
#include "kernels/adaptive_pool.h"
#include "kernels/pool.h"
#include "nn/operation.h"

namespace lockstep::nn {

namespace {

kernels::Pool2dShape pool_shape(const char* operation, const Tensor& x, int kernel, int stride, int padding) {
  check_rank(operation, x, 4);
  const kernels::Pool2dShape shape{x.dim(0),
                                   static_cast<int>(x.dim(1)),
                                   static_cast<int>(x.dim(2)),
                                   static_cast<int>(x.dim(3)),
                                   kernel,
                                   stride,
                                   padding};
  kernels::check_pool2d(operation, shape);
  return shape;
}

Shape pooled(const kernels::Pool2dShape& shape) {
  return {shape.batch, shape.out_height(), shape.out_width(), shape.channels};
}

}  // namespace

Tensor max_pool2d(const Tensor& x, int kernel, int stride, int padding) {
  const auto shape = pool_shape("max_pool2d", x, kernel, stride, padding);
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

}  // namespace lockstep::nn
