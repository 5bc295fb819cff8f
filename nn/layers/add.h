// Addition, as residual blocks have it.
#pragma once

#include "core/tensor.h"

namespace lockstep::nn {

// Of two tensors of one shape; float32 where only one of them is.
Tensor add(const Tensor& a, const Tensor& b);

}  // namespace lockstep::nn
