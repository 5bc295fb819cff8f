// Floating-point values of other widths as float32, in which Lockstep keeps weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/io/safetensors.h"

namespace lockstep::data {

// Turns every tensor of type F16, BF16 or F64 into one of F32, and returns how many there were of each. F16
// and BF16 exactly, infinities and NaNs included; F64 rounded to nearest, ties to even. Integers stay as they
// are. Throws Error, naming file, tensor and value, where a finite F64 is beyond what float32 can hold; then
// the tensors are as they were.
std::map<StoredType, int> convert_to_float32(std::vector<HostTensor>& tensors, const std::string& file);

}  // namespace lockstep::data
