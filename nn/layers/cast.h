// Tensors in another floating-point type.
#pragma once

#include "core/tensor.h"

namespace lockstep::nn {

// x in another floating-point type, rounded to the nearest; x itself where it has that type.
Tensor cast(const Tensor& x, DType to);

// The same without a history: a new tensor, or x itself.
Tensor converted(const Tensor& x, DType to);

// What matrix products and convolutions read on a device.
DType operand_type(const Device& device);

}  // namespace lockstep::nn
