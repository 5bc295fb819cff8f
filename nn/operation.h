// What the operations of nn/layers.h share: checks of what they are given, and scratch memory.
#pragma once

#include <fmt/format.h>

#include "core/tensor.h"
#include "kernels/check.h"
#include "kernels/scratch.h"

namespace lockstep::nn {

inline void check_rank(const char* operation, const Tensor& x, size_t rank) {
  if (x.shape().size() != rank)
    throw Error(
        fmt::format("{}: expected {} dimensions, found shape {}", operation, rank, to_string(x.shape())));
}

inline void check_device(const char* operation, const Tensor& x, const Tensor& other, const char* name) {
  if (x.device() != other.device())
    throw Error(fmt::format("{}: the input is on device {}, the {} on device {}", operation,
                            x.device().index(), name, other.device().index()));
}

// Scratch memory for one call: back in the pool, and so in stream order, as soon as the call is enqueued.
inline Tensor workspace(const Device& device, size_t bytes) {
  return Tensor::empty({static_cast<int64_t>(bytes)}, device, DType::uint8);
}

// The same, and the tickets of its device, for a sum.
inline kernels::SumScratch sum_scratch(const Tensor& memory) {
  return {memory.data<uint8_t>(), memory.device().tickets()};
}

}  // namespace lockstep::nn
