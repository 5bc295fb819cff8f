// Reductions to one value, in an order that depends on n alone.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/scratch.h"

namespace lockstep::kernels {

// *sum = x[0] + ... + x[n-1] (0 for n = 0), times factor.
void reduce_sum(const float* x, int64_t n, float factor, float* sum, const SumScratch& scratch,
                cudaStream_t stream);
size_t reduce_sum_workspace_bytes(int64_t n);

}  // namespace lockstep::kernels
