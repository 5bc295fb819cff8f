#include "nn/layers/add.h"

#include "core/autograd.h"
#include "kernels/elementwise.h"
#include "nn/layers/cast.h"
#include "nn/operation.h"

namespace lockstep::nn {

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

}  // namespace lockstep::nn
