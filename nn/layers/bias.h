// The bias of a linear layer or a convolution.
#pragma once

#include "core/tensor.h"

namespace lockstep::nn {

enum class Bias { learned, none };

// Throws, naming the operation, where the bias is not [channels].
void check_bias(const char* operation, const Tensor& bias, int64_t channels);

// The sum over all but the last dimension of `gradient`: [channels], float32.
Tensor bias_gradient(const Tensor& gradient, int64_t channels);

}  // namespace lockstep::nn
