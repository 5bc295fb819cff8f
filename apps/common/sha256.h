// A fingerprint of a model's weights, to compare two runs by eye.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace lockstep::apps {

// SHA-256, in hexadecimal, over the bytes of all tensors (float32, little-endian) in their order.
std::string weights_sha256(const std::vector<Tensor>& parameters);

}  // namespace lockstep::apps
