// Convolution: validates, and chooses the path. With Math::own it is im2col and the tiled product. With
// Math::library it is cuDNN, except where channels are few (the direct kernel is faster) or cuDNN does not
// support the shape. bfloat16 goes to cuDNN, or else through float32. The choice depends on the shape and on
// what cuDNN answers.
#include "kernels/conv/conv.h"

#include <array>
#include <string>

#include "kernels/conv/conv_paths.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {
namespace {

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

bool always(const MathContext& /*context*/, const Conv2dShape& /*shape*/, ConvPass /*pass*/) {
  return true;
}

bool with_library(const MathContext& context, const Conv2dShape& /*shape*/, ConvPass /*pass*/) {
  return context.math == Math::library;
}

// Up to this product of input and output channels the direct kernel is chosen: measured against cuDNN on the
// CPU by bench/conv_layers_bench. The gradient of the weights loses sooner, since its tiles no longer share a
// cache. With 32 output channels, as in ResNet's first layer, a library fills its vectors with them.
constexpr int64_t kFewChannels = 1024;
constexpr int64_t kFewFilterChannels = 256;
constexpr int kManyOutputs = 32;

bool with_few_channels(const MathContext& context, const Conv2dShape& s, ConvPass pass) {
  const int64_t few = pass == ConvPass::backward_filter ? kFewFilterChannels : kFewChannels;
  return context.math == Math::library && s.out_channels < kManyOutputs &&
         int64_t{s.in_channels} * s.out_channels <= few;
}

template <typename T>
struct Rule {
  bool (*when)(const MathContext& context, const Conv2dShape& shape, ConvPass pass);
  const ConvPath<T>& path;
};

// The first rule whose path supports the pass holds; the last always does.
const auto& rules(float /*type*/) {
  static const std::array all{
      Rule<float>{with_few_channels, conv2d_direct_path()},
      Rule<float>{with_library, conv2d_library_path<float>()},
      Rule<float>{with_library, conv2d_direct_path()},
      Rule<float>{always, conv2d_im2col_path()},
  };
  return all;
}

const auto& rules(__nv_bfloat16 /*type*/) {
  static const std::array all{
      Rule<__nv_bfloat16>{with_library, conv2d_library_path<__nv_bfloat16>()},
      Rule<__nv_bfloat16>{always, conv2d_widened_path()},
  };
  return all;
}

template <typename T>
const ConvPath<T>& choose(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  for (const Rule<T>& rule : rules(T{}))
    if (rule.when(context, shape, pass) && rule.path.supports(context, shape, pass)) return rule.path;
  throw Error(std::string(name(pass)) + ": no path for this shape");
}

std::string size(int height, int width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

}  // namespace

void check_conv2d(const char* operation, const Conv2dShape& s) {
  if (s.batch < 0 || s.height <= 0 || s.width <= 0 || s.in_channels <= 0 || s.out_channels <= 0 ||
      s.kernel_height <= 0 || s.kernel_width <= 0)
    throw Error(std::string(operation) + ": an image of " + size(s.height, s.width) + ", a kernel of " +
                size(s.kernel_height, s.kernel_width) + ", " + std::to_string(s.in_channels) + " to " +
                std::to_string(s.out_channels) + " channels: use positive sizes");
  if (s.stride < 1 || s.padding < 0)
    throw Error(std::string(operation) + ": stride " + std::to_string(s.stride) + " and padding " +
                std::to_string(s.padding) + ": use a positive stride and no negative padding");
  if (s.kernel_height > s.height + 2 * s.padding || s.kernel_width > s.width + 2 * s.padding)
    throw Error(std::string(operation) + ": a kernel of " + size(s.kernel_height, s.kernel_width) +
                " does not fit into an image of " + size(s.height, s.width) + " with padding " +
                std::to_string(s.padding));
}

template <typename T>
size_t conv2d_workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  check_conv2d(name(pass), shape);
  if (shape.batch == 0) return 0;
  return choose<T>(context, shape, pass).workspace_bytes(context, shape, pass);
}

template <typename T>
void conv2d_forward(const MathContext& context, const Conv2dShape& shape, const T* x, const T* w,
                    const float* bias, T* y, void* workspace) {
  check_conv2d("conv2d_forward", shape);
  if (shape.batch == 0) return;
  choose<T>(context, shape, ConvPass::forward).forward(context, shape, x, w, bias, y, workspace);
}

template <typename T>
void conv2d_backward_data(const MathContext& context, const Conv2dShape& shape, const T* dy, const T* w,
                          T* dx, void* workspace) {
  check_conv2d("conv2d_backward_data", shape);
  if (shape.batch == 0) return;
  choose<T>(context, shape, ConvPass::backward_data).backward_data(context, shape, dy, w, dx, workspace);
}

template <typename T>
void conv2d_backward_filter(const MathContext& context, const Conv2dShape& shape, const T* x, const T* dy,
                            float* dw, void* workspace) {
  check_conv2d("conv2d_backward_filter", shape);
  if (shape.batch == 0) {
    LOCKSTEP_CUDA(
        cudaMemsetAsync(dw, 0, static_cast<size_t>(shape.weight_size()) * sizeof(float), context.stream));
    return;
  }
  choose<T>(context, shape, ConvPass::backward_filter).backward_filter(context, shape, x, dy, dw, workspace);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                              \
  template size_t conv2d_workspace_bytes<T>(const MathContext&, const Conv2dShape&, ConvPass);               \
  template void conv2d_forward(const MathContext&, const Conv2dShape&, const T*, const T*, const float*, T*, \
                               void*);                                                                       \
  template void conv2d_backward_data(const MathContext&, const Conv2dShape&, const T*, const T*, T*, void*); \
  template void conv2d_backward_filter(const MathContext&, const Conv2dShape&, const T*, const T*, float*,   \
                                       void*)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
