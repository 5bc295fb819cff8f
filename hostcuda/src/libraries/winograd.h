// Convolution with 3x3 weights and stride 1 by Winograd's F(4x4, 3x3): the three passes, for NHWC float32 and
// bfloat16, which is widened where it is read and rounded where it is written.
// Each is a batch of matrix products between transformed operands, done in blocks of tiles that fit a core's
// cache, so that the transformed batch never exists as a whole. The order of all sums depends on the shape
// alone: neither the number of threads nor chance changes a bit of the result.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "hostcuda/src/libraries/convolution.h"

namespace hostcuda {
struct Device;
}

namespace hostcuda::winograd {

// 3x3, stride 1, NHWC, channels in multiples of 16, padding of 2 at most, and sizes of which tiles of
// 4x4 do not waste too much.
bool supports(const ConvolutionProblem& problem);

size_t workspace_bytes(const ConvolutionProblem& problem);

// result = alpha pass(inputs) + beta result, shared between the workers of the device; beta = 0 never reads
// the result. The workspace may start at any address.
cudaError_t run(Device& device, const ConvolutionProblem& problem, float alpha, ConvolutionData data,
                void* workspace, float beta);

}  // namespace hostcuda::winograd
