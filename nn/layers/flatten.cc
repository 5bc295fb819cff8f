#include "nn/layers/flatten.h"

#include "kernels/check.h"

namespace lockstep::nn {

Tensor flatten(const Tensor& x) {
  if (x.shape().empty()) throw Error("flatten: a tensor without dimensions has no rows");
  int64_t columns = 1;
  for (size_t i = 1; i < x.shape().size(); ++i) columns *= x.shape()[i];
  return x.reshape({x.dim(0), columns});
}

Tensor Flatten::forward(const Tensor& x) {
  return flatten(x);
}

}  // namespace lockstep::nn
