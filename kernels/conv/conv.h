// Two-dimensional convolution (cross-correlation, as everywhere in deep learning), NHWC.
// x: [batch, height, width, in_channels]; w: [out_channels, kernel_height, kernel_width, in_channels];
// y: [batch, out_height, out_width, out_channels]. T is float or __nv_bfloat16; sums are float32, and so are
// the bias and the gradient of the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/check.h"
#include "kernels/math_context.h"

namespace lockstep::kernels {

struct Conv2dShape {
  int64_t batch;
  int height, width, in_channels;
  int out_channels, kernel_height, kernel_width;
  int stride, padding;

  int out_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  int out_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  int64_t input_size() const { return batch * height * width * in_channels; }
  int64_t output_size() const { return batch * out_height() * out_width() * out_channels; }
  int64_t weight_size() const {
    return static_cast<int64_t>(out_channels) * kernel_height * kernel_width * in_channels;
  }
};

// Throws, naming the operation, where sizes, stride or padding cannot be, or the kernel does not fit into the
// padded image. Call it before out_height(). All functions below do.
void check_conv2d(const char* operation, const Conv2dShape& shape);

enum class ConvPass { forward, backward_data, backward_filter };

// cuDNN said that it has a pass, and declined when it was to run; nothing was written. That algorithm is not
// chosen again: ask for the workspace anew, and call again.
class ConvDeclined : public Error {
 public:
  using Error::Error;
};

// Bytes of scratch memory that the pass needs; the caller hands them in. Depends on context and shape alone.
// batch = 0 is allowed in every function here: nothing to do, and a filter gradient of zeros.
template <typename T = float>
size_t conv2d_workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass);

// Which path the pass takes, and why; for people.
struct ConvChoice {
  std::string path;
  std::string why;
};
ConvChoice conv2d_choice(const MathContext& context, const Conv2dShape& shape, ConvPass pass, bool bfloat16);

// y = conv(x, w) + bias; bias: [out_channels] or null.
template <typename T>
void conv2d_forward(const MathContext& context, const Conv2dShape& shape, const T* x, const T* w,
                    const float* bias, T* y, void* workspace);

// dx = gradient of the input, written whole.
template <typename T>
void conv2d_backward_data(const MathContext& context, const Conv2dShape& shape, const T* dy, const T* w,
                          T* dx, void* workspace);

// dw = gradient of the weights, written whole, summed in an order that depends on the shape alone.
template <typename T>
void conv2d_backward_filter(const MathContext& context, const Conv2dShape& shape, const T* x, const T* dy,
                            float* dw, void* workspace);

}  // namespace lockstep::kernels
