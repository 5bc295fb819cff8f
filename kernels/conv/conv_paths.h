// The ways to a convolution between which kernels/conv/conv.cu chooses: cuDNN, im2col and a matrix product, a
// direct kernel for few channels, and for bfloat16 any of these in float32. Each takes what conv.h describes,
// with batch > 0.
#pragma once

#include <cuda_bf16.h>

#include "kernels/conv/conv.h"

namespace lockstep::kernels {

// cuDNN, NHWC, deterministic algorithms only. `supports` asks cuDNN, once a shape and device.
template <typename T = float>
bool conv2d_library_supports(const MathContext& context, const Conv2dShape& shape, ConvPass pass);
template <typename T = float>
size_t conv2d_library_workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass);
template <typename T>
void conv2d_library_forward(const MathContext& context, const Conv2dShape& shape, const T* x, const T* w,
                            const float* bias, T* y, void* workspace);
template <typename T>
void conv2d_library_backward_data(const MathContext& context, const Conv2dShape& shape, const T* dy,
                                  const T* w, T* dx, void* workspace);
template <typename T>
void conv2d_library_backward_filter(const MathContext& context, const Conv2dShape& shape, const T* x,
                                    const T* dy, float* dw, void* workspace);

// im2col and the tiled matrix product.
size_t conv2d_im2col_workspace_bytes(const Conv2dShape& shape);
void conv2d_im2col_forward(const MathContext& context, const Conv2dShape& shape, const float* x,
                           const float* w, const float* bias, float* y, void* workspace);
void conv2d_im2col_backward_data(const MathContext& context, const Conv2dShape& shape, const float* dy,
                                 const float* w, float* dx, void* workspace);
void conv2d_im2col_backward_filter(const MathContext& context, const Conv2dShape& shape, const float* x,
                                   const float* dy, float* dw, void* workspace);

// The direct kernel. Any shape, but backward data only with stride 1.
size_t conv2d_direct_correlation_workspace_bytes(const Conv2dShape& shape, ConvPass pass);
size_t conv2d_direct_filter_workspace_bytes(const Conv2dShape& shape);

void conv2d_direct_forward(cudaStream_t stream, const Conv2dShape& shape, const float* x, const float* w,
                           const float* bias, float* y, void* workspace);
void conv2d_direct_backward_data(cudaStream_t stream, const Conv2dShape& shape, const float* dy,
                                 const float* w, float* dx, void* workspace);
void conv2d_direct_backward_filter(cudaStream_t stream, const Conv2dShape& shape, const float* x,
                                   const float* dy, float* dw, void* workspace);

// bfloat16 by way of float32: operands are cast up, conv.h's float functions called, the result cast down.
size_t conv2d_widened_workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass);
void conv2d_widened_forward(const MathContext& context, const Conv2dShape& shape, const __nv_bfloat16* x,
                            const __nv_bfloat16* w, const float* bias, __nv_bfloat16* y, void* workspace);
void conv2d_widened_backward_data(const MathContext& context, const Conv2dShape& shape,
                                  const __nv_bfloat16* dy, const __nv_bfloat16* w, __nv_bfloat16* dx,
                                  void* workspace);
void conv2d_widened_backward_filter(const MathContext& context, const Conv2dShape& shape,
                                    const __nv_bfloat16* x, const __nv_bfloat16* dy, float* dw,
                                    void* workspace);

}  // namespace lockstep::kernels
