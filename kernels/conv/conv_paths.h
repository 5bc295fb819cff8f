// The ways to a convolution, between which kernels/conv/conv.cu chooses. Each takes what conv.h describes,
// with batch > 0.
#pragma once

#include <cuda_bf16.h>

#include "kernels/conv/conv.h"

namespace lockstep::kernels {

template <typename T>
struct ConvPath {
  const char* name;
  bool (*supports)(const MathContext& context, const Conv2dShape& shape, ConvPass pass);
  size_t (*workspace_bytes)(const MathContext& context, const Conv2dShape& shape, ConvPass pass);
  void (*forward)(const MathContext& context, const Conv2dShape& shape, const T* x, const T* w,
                  const float* bias, T* y, void* workspace);
  void (*backward_data)(const MathContext& context, const Conv2dShape& shape, const T* dy, const T* w, T* dx,
                        void* workspace);
  void (*backward_filter)(const MathContext& context, const Conv2dShape& shape, const T* x, const T* dy,
                          float* dw, void* workspace);
};

// cuDNN, NHWC, deterministic algorithms only. `supports` asks cuDNN, once per shape and device.
template <typename T>
const ConvPath<T>& conv2d_library_path();

// The same with channels of zeros up to a multiple of 8.
template <typename T>
const ConvPath<T>& conv2d_padded_path();

// im2col, and cuBLAS or the tiled matrix product. Any shape.
const ConvPath<float>& conv2d_im2col_path(Math product);

// For few channels on a GPU: is_small_convolution (conv_policy.h).
const ConvPath<float>& conv2d_small_path();

// A direct kernel, for few channels. Any shape, but backward data only with stride 1.
const ConvPath<float>& conv2d_direct_path();

// bfloat16 by way of float32: operands are cast up, conv.h's float functions called, the result cast down.
const ConvPath<__nv_bfloat16>& conv2d_widened_path();

// The direct path's third pass, in a file of its own.
size_t conv2d_direct_filter_workspace_bytes(const Conv2dShape& shape);
void conv2d_direct_backward_filter(const MathContext& context, const Conv2dShape& shape, const float* x,
                                   const float* dy, float* dw, void* workspace);

}  // namespace lockstep::kernels
