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

Tensor cast(const Tensor& x, DType to) {
  if (x.dtype() == to) return x;
  return record("cast", converted(x, to), {x},
                [from = x.dtype()](const Tensor& dy) { return std::vector<Tensor>{converted(dy, from)}; });
}

DType operand_type(const Device& device) {
  return device.math().precision == kernels::Precision::bf16 ? DType::bfloat16 : DType::float32;
}

}  // namespace lockstep::nn
