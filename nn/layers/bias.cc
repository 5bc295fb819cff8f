#include "nn/layers/bias.h"

#include "kernels/bias.h"
#include "nn/layers/cast.h"
#include "nn/operation.h"

namespace lockstep::nn {

void check_bias(const char* operation, const Tensor& bias, int64_t channels) {
  if (bias.shape() != Shape{channels})
    throw Error(
        fmt::format("{}: a bias of shape {} for {} channels", operation, to_string(bias.shape()), channels));
}

Tensor bias_gradient(const Tensor& gradient, const Tensor& bias) {
  if (!bias.defined() || !bias.requires_grad()) return {};
  const int64_t channels = bias.size(), rows = channels == 0 ? 0 : gradient.size() / channels;
  const Tensor scratch =
      workspace(gradient.device(), kernels::bias_gradient_workspace_bytes(rows, static_cast<int>(channels)));
  const Tensor db = gradient_memory(bias, DType::float32);
  for_float_type("bias_gradient", gradient.dtype(), [&]<typename T>(T) {
    kernels::bias_gradient(gradient.data<T>(), db.data<float>(), rows, static_cast<int>(channels),
                           sum_scratch(scratch), gradient.device().stream());
  });
  return converted(db, bias.dtype());
}

}  // namespace lockstep::nn
