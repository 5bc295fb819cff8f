// The bias of a linear layer or a convolution.
#pragma once

#include "core/tensor.h"

namespace lockstep::nn {

enum class Bias { learned, none };

// Throws, naming the operation, where the bias is not [channels].
void check_bias(const char* operation, const Tensor& bias, int64_t channels);

// The sum over all but the last dimension of `gradient`, as the gradient of `bias`; undefined where there is
// no bias, or it wants none.
Tensor bias_gradient(const Tensor& gradient, const Tensor& bias);

}  // namespace lockstep::nn
