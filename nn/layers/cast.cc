#include "nn/layers/cast.h"

#include "core/autograd.h"
#include "kernels/elementwise.h"

namespace lockstep::nn {

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

Tensor converted_weight(const Tensor& weight, DType to) {
  if (weight.dtype() != DType::float32 || to != DType::bfloat16) return converted(weight.detach(), to);
  if (const Tensor kept = weight.rounded(); kept.defined()) return kept;
  const Tensor copy = converted(weight.detach(), to);
  weight.keep_rounded(copy);
  return copy;
}

Tensor gradient_memory(const Tensor& parameter, DType type) {
  if (parameter.dtype() == type) return lockstep::gradient_memory(parameter);
  return Tensor::empty(parameter.shape(), parameter.device(), type);
}

Tensor cast(const Tensor& x, DType to) {
  if (x.dtype() == to) return x;
  return record("cast", converted(x, to), {x},
                [from = x.dtype()](const Tensor& dy) { return std::vector<Tensor>{converted(dy, from)}; });
}

DType operand_type(const Device& device) {
  return device.math().precision == kernels::Precision::bf16 ? DType::bfloat16 : DType::float32;
}

}  // namespace lockstep::nn
