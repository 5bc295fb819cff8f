// Maximum and average pooling, NHWC. Windows may overlap (stride < kernel) and may lie partly in the padding.
// T is float or __nv_bfloat16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

struct Pool2dShape {
  int64_t batch;
  int height, width, channels;
  int kernel, stride, padding;  // square windows; padding < kernel

  int out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  int64_t input_size() const { return batch * height * width * channels; }
  int64_t output_size() const { return batch * out_height() * out_width() * channels; }
};

// Throws, naming the operation, where window, stride or padding cannot be, or the window does not fit into
// the padded image. Call it before out_height(). All functions below do.
void check_pool2d(const char* operation, const Pool2dShape& shape);

// y: [batch, out_height, out_width, channels]; argmax: as y, the window position (row * kernel + column, so
// kernel <= 16) of the first largest value. Padding never wins. NaN wins over everything, as in PyTorch.
template <typename T>
void max_pool2d_forward(const Pool2dShape& shape, const T* x, T* y, uint8_t* argmax, cudaStream_t stream);

// dx (written whole, not added to) gets every dy at the position that argmax names.
template <typename T>
void max_pool2d_backward(const Pool2dShape& shape, const T* dy, const uint8_t* argmax, T* dx,
                         cudaStream_t stream);

// The mean of a window; the padding counts as zeros, so the divisor is always kernel * kernel (PyTorch's
// default).
template <typename T>
void avg_pool2d_forward(const Pool2dShape& shape, const T* x, T* y, cudaStream_t stream);

template <typename T>
void avg_pool2d_backward(const Pool2dShape& shape, const T* dy, T* dx, cudaStream_t stream);

}  // namespace lockstep::kernels
