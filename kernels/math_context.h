// Who does the heavy matrix work: the vendor's libraries (with our own kernels where these have none), or
// only kernels written here, as plain CUDA that one can read.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>

namespace lockstep::kernels {

enum class Math { library, own };

// What matrix products and convolutions round their operands to; all sum in float32. fp32: to nothing. tf32:
// to the 10 bits of fraction that tensor cores take of a float32 (on a processor without: not at all). bf16:
// the layers of nn/ make their activations bfloat16.
enum class Precision { fp32, tf32, bf16 };

// What a matrix product or a convolution needs beside its operands. The handles are already bound to
// `stream`.
struct MathContext {
  Math math;
  cublasHandle_t cublas;
  cudnnHandle_t cudnn;
  cudaStream_t stream;
  Precision precision = Precision::fp32;
  unsigned* tickets = nullptr;  // for sums on `stream` (kernels/scratch.h)
};

}  // namespace lockstep::kernels
