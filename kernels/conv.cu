// Convolution: validates, and chooses the path. With Math::own it is im2col and the tiled product. With
// Math::library it is cuDNN, except where channels are few (the direct kernel is faster) or cuDNN does not
// support the shape. The choice depends on the shape and on what cuDNN answers.
#include "kernels/conv.h"

#include <string>

#include "kernels/conv_paths.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {
namespace {

enum class Path { library, im2col, direct };

const char* name(ConvPass pass) {
  switch (pass) {
    case ConvPass::forward:
      return "conv2d_forward";
    case ConvPass::backward_data:
      return "conv2d_backward_data";
    default:
      return "conv2d_backward_filter";
  }
}

void validate(const Conv2dShape& s, ConvPass pass) {
  if (s.batch < 0 || s.height <= 0 || s.width <= 0 || s.in_channels <= 0 || s.out_channels <= 0 ||
      s.kernel_height <= 0 || s.kernel_width <= 0 || s.stride <= 0 || s.padding < 0)
    throw Error(std::string(name(pass)) +
                ": sizes and stride must be positive, padding and batch not negative");
  if (s.kernel_height > s.height + 2 * s.padding || s.kernel_width > s.width + 2 * s.padding)
    throw Error(std::string(name(pass)) + ": the kernel is " + std::to_string(s.kernel_height) + " x " +
                std::to_string(s.kernel_width) + " but the padded input only " +
                std::to_string(s.height + 2 * s.padding) + " x " + std::to_string(s.width + 2 * s.padding));
}

// Up to this product of input and output channels the direct kernel is chosen: measured against cuDNN on the
// CPU by bench/conv_layers_bench. The gradient of the weights loses sooner, since its tiles no longer share a
// cache. With 32 output channels, as in ResNet's first layer, a library fills its vectors with them.
constexpr int64_t kFewChannels = 1024;
constexpr int64_t kFewFilterChannels = 256;
constexpr int kManyOutputs = 32;

Path choose(const MathContext& context, const Conv2dShape& s, ConvPass pass) {
  if (context.math == Math::own) return Path::im2col;
  const bool direct_can = pass != ConvPass::backward_data || s.stride == 1;
  const int64_t few = pass == ConvPass::backward_filter ? kFewFilterChannels : kFewChannels;
  if (direct_can && s.out_channels < kManyOutputs && int64_t{s.in_channels} * s.out_channels <= few)
    return Path::direct;
  if (conv2d_library_supports(context, s, pass)) return Path::library;
  return direct_can ? Path::direct : Path::im2col;
}

}  // namespace

size_t conv2d_workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  validate(shape, pass);
  if (shape.batch == 0) return 0;
  switch (choose(context, shape, pass)) {
    case Path::library:
      return conv2d_library_workspace_bytes(context, shape, pass);
    case Path::im2col:
      return conv2d_im2col_workspace_bytes(shape);
    default:
      return pass == ConvPass::backward_filter ? conv2d_direct_filter_workspace_bytes(shape)
                                               : conv2d_direct_correlation_workspace_bytes(shape, pass);
  }
}

void conv2d_forward(const MathContext& context, const Conv2dShape& shape, const float* x, const float* w,
                    const float* bias, float* y, void* workspace) {
  validate(shape, ConvPass::forward);
  if (shape.batch == 0) return;
  switch (choose(context, shape, ConvPass::forward)) {
    case Path::library:
      return conv2d_library_forward(context, shape, x, w, bias, y, workspace);
    case Path::im2col:
      return conv2d_im2col_forward(context, shape, x, w, bias, y, workspace);
    default:
      return conv2d_direct_forward(context.stream, shape, x, w, bias, y, workspace);
  }
}

void conv2d_backward_data(const MathContext& context, const Conv2dShape& shape, const float* dy,
                          const float* w, float* dx, void* workspace) {
  validate(shape, ConvPass::backward_data);
  if (shape.batch == 0) return;
  switch (choose(context, shape, ConvPass::backward_data)) {
    case Path::library:
      return conv2d_library_backward_data(context, shape, dy, w, dx, workspace);
    case Path::im2col:
      return conv2d_im2col_backward_data(context, shape, dy, w, dx, workspace);
    default:
      return conv2d_direct_backward_data(context.stream, shape, dy, w, dx, workspace);
  }
}

void conv2d_backward_filter(const MathContext& context, const Conv2dShape& shape, const float* x,
                            const float* dy, float* dw, void* workspace) {
  validate(shape, ConvPass::backward_filter);
  if (shape.batch == 0) {
    LOCKSTEP_CUDA(
        cudaMemsetAsync(dw, 0, static_cast<size_t>(shape.weight_size()) * sizeof(float), context.stream));
    return;
  }
  switch (choose(context, shape, ConvPass::backward_filter)) {
    case Path::library:
      return conv2d_library_backward_filter(context, shape, x, dy, dw, workspace);
    case Path::im2col:
      return conv2d_im2col_backward_filter(context, shape, x, dy, dw, workspace);
    default:
      return conv2d_direct_backward_filter(context.stream, shape, x, dy, dw, workspace);
  }
}

}  // namespace lockstep::kernels
