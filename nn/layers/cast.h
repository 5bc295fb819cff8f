// Tensors in another floating-point type.
#pragma once

#include "core/tensor.h"

namespace lockstep::nn {

// x in another floating-point type, rounded to the nearest; x itself where it has that type.
Tensor cast(const Tensor& x, DType to);

// The same without a history: a new tensor, or x itself.
Tensor converted(const Tensor& x, DType to);

// A weight as an operand of that type: its bfloat16 copy is kept with it until it is overwritten.
Tensor converted_weight(const Tensor& weight, DType to);

// As lockstep::gradient_memory where `parameter` has the type, else new memory of its shape.
Tensor gradient_memory(const Tensor& parameter, DType type);

// What matrix products and convolutions read on a device.
DType operand_type(const Device& device);

}  // namespace lockstep::nn
