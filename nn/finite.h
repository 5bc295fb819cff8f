// Whether what training has made are still numbers: one NaN or infinity in a weight spoils every output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "nn/io/state_dict.h"
#include "nn/module.h"

namespace lockstep::nn {

// Weights, or what comes of them, that are no finite numbers.
class NotFinite : public Error {
 public:
  using Error::Error;
};

// The first of these tensors with values that are NaN or infinite, in words: "12 of the 30720 values of
// fc1.weight are NaN or infinite". One launch a tensor; waits for their devices.
std::optional<std::string> first_not_finite(const std::vector<StateEntry>& entries);
// Of the module's parameters and buffers.
std::optional<std::string> first_not_finite(const Module& module);

}  // namespace lockstep::nn
