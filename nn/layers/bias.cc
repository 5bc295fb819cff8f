#include "nn/layers/bias.h"

#include <fmt/format.h>

#include "kernels/bias.h"
#include "kernels/check.h"

namespace lockstep::nn {

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

}  // namespace lockstep::nn
