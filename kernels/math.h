// Who does the heavy matrix work: the vendor's libraries (with our own kernels where these have none), or
// only kernels written here, as plain CUDA that one can read.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>

namespace lockstep::kernels {

enum class Math { library, own };

// What a matrix product or a convolution needs beside its operands. The handles are already bound to
// `stream`.
struct MathContext {
  Math math;
  cublasHandle_t cublas;
  cudnnHandle_t cudnn;
  cudaStream_t stream;
};

}  // namespace lockstep::kernels
