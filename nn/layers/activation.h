// Activations: each element alone, as kernels/activation.h says.
#pragma once

#include "kernels/activation.h"
#include "nn/module.h"

namespace lockstep::nn {

// For each row (relu, ReLU) of the table in kernels/activation.h: the operation, relu(x), and the layer,
// ReLU.
#define LOCKSTEP_DECLARE(function, Layer)     \
  Tensor function(const Tensor& x);           \
  class Layer : public Module {               \
   public:                                    \
    Tensor forward(const Tensor& x) override; \
    std::string describe() const override {   \
      return #Layer;                          \
    }                                         \
  };
LOCKSTEP_ACTIVATIONS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

}  // namespace lockstep::nn
