#include "nn/layers/linear.h"

#include "core/autograd.h"
#include "kernels/bias.h"
#include "kernels/matmul.h"
#include "nn/layers/cast.h"
#include "nn/operation.h"

namespace lockstep::nn {

namespace {

// c = a b^T, a b or a^T b of matrices of one type, summed in float32.
void product_into(const Tensor& c, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b) {
  const int64_t m = c.dim(0), n = c.dim(1), k = a.dim(transpose_a ? 0 : 1);
  for_float_type("linear", a.dtype(), [&]<typename T>(T) {
    kernels::matmul(a.device().math(), transpose_a, transpose_b, m, n, k, a.data<T>(), b.data<T>(), 0.0f,
                    c.data<float>());
  });
}

Tensor product(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b) {
  const Tensor c = Tensor::empty({a.dim(transpose_a ? 1 : 0), b.dim(transpose_b ? 0 : 1)}, a.device());
  product_into(c, a, transpose_a, b, transpose_b);
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
  const Tensor w = converted_weight(weight, type);
  const Tensor sums = product(x, false, w, true);
  if (bias.defined())
    kernels::bias_add(sums.data<float>(), bias.data<float>(), rows, static_cast<int>(out), device.stream());

  const bool want_dx = x.requires_grad(), want_dw = weight.requires_grad();
  return record("linear", converted(sums, type), {x, weight, bias},
                [x = x.detach(), w, want_dx, want_dw, weight, bias](const Tensor& dy) {
                  const DeviceGuard here(x.device());
                  Tensor dx, dw;
                  if (want_dx) dx = converted(product(dy, false, w, false), x.dtype());
                  if (want_dw) {
                    dw = gradient_memory(weight, DType::float32);
                    product_into(dw, dy, true, x, false);
                    dw = converted(dw, weight.dtype());
                  }
                  return std::vector<Tensor>{dx, dw, bias_gradient(dy, bias)};
                },
                {{"input", want_dw ? x : Tensor()}, {"weight", want_dx ? w : Tensor()}});
}

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

}  // namespace lockstep::nn
