// How weights start. What has no fans starts as its constant: biases as zeros, the scales of a norm as ones.
#pragma once

#include <cstdint>

#include "nn/module.h"

namespace lockstep::nn {

enum class Init {
  normal,   // N(0, 0.01^2), as in the chapter; deep or narrow networks may never leave the start with it
  xavier,   // uniform on +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)
  kaiming,  // N(0, 2 / fan_in), for ReLU (He et al., 2015)
};

// Fills every parameter of `module`, and every buffer with its start. A value depends on the seed, the
// parameter's position in named_parameters() and its index alone.
void initialise(const Module& module, Init init, uint64_t seed);

}  // namespace lockstep::nn
