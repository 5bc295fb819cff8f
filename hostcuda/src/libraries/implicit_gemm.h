// Convolution as a matrix product whose left operand is gathered from the images block by block, just before
// it is multiplied, and so never exists as a whole ("implicit GEMM"): any size and stride, for NHWC float32
// and bfloat16, which is widened where it is read and rounded where it is written. Sums have an order that
// the shape alone determines: neither the number of threads nor chance changes a bit of the result.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "hostcuda/src/libraries/convolution.h"

namespace hostcuda {
struct Device;
}

namespace hostcuda::implicit_gemm {

// NHWC, channels in multiples of 16.
bool supports(const ConvolutionProblem& problem);

size_t workspace_bytes(const ConvolutionProblem& problem);

// result = alpha pass(inputs) + beta result, shared between the workers of the device; beta = 0 never reads
// the result. The workspace may start at any address.
cudaError_t run(Device& device, const ConvolutionProblem& problem, float alpha, ConvolutionData data,
                void* workspace, float beta);

}  // namespace hostcuda::implicit_gemm
