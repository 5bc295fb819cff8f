// Average pooling to a given output size, NHWC: output i of an axis averages the inputs
// [floor(i in / out), ceil((i + 1) in / out)), as in PyTorch. Windows differ in size by one at most and may
// overlap.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

struct AdaptivePool2dShape {
  int64_t batch;
  int height, width, channels;
  int out_height, out_width;
};

// y: [batch, out_height, out_width, channels] from x: [batch, height, width, channels].
template <typename T>
void adaptive_avg_pool2d_forward(const AdaptivePool2dShape& shape, const T* x, T* y, cudaStream_t stream);

// dx, written whole.
template <typename T>
void adaptive_avg_pool2d_backward(const AdaptivePool2dShape& shape, const T* dy, T* dx, cudaStream_t stream);

}  // namespace lockstep::kernels
