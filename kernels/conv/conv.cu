// Convolution: validates, and chooses the path. With Math::own it is im2col and the tiled product. With
// Math::library it is cuDNN, except where channels are few (the direct kernel is faster) or cuDNN does not
// support the shape. bfloat16 goes to cuDNN, or else through float32. The choice depends on the shape and on
// what cuDNN answers.
#include "kernels/conv/conv.h"

#include <string>
#include <type_traits>

#include "kernels/conv/conv_paths.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {
namespace {

template <typename T>
constexpr bool kIsBfloat16 = std::is_same_v<T, __nv_bfloat16>;

enum class Path { library, im2col, direct, widened };

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

template <typename T>
Path choose(const MathContext& context, const Conv2dShape& s, ConvPass pass) {
  if constexpr (kIsBfloat16<T>) {
    const bool library = context.math == Math::library && conv2d_library_supports<T>(context, s, pass);
    return library ? Path::library : Path::widened;
  }
  if (context.math == Math::own) return Path::im2col;
  const bool direct_can = pass != ConvPass::backward_data || s.stride == 1;
  const int64_t few = pass == ConvPass::backward_filter ? kFewFilterChannels : kFewChannels;
  if (direct_can && s.out_channels < kManyOutputs && int64_t{s.in_channels} * s.out_channels <= few)
    return Path::direct;
  if (conv2d_library_supports<T>(context, s, pass)) return Path::library;
  return direct_can ? Path::direct : Path::im2col;
}

}  // namespace

template <typename T>
size_t conv2d_workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  validate(shape, pass);
  if (shape.batch == 0) return 0;
  switch (choose<T>(context, shape, pass)) {
    case Path::widened:
      return conv2d_widened_workspace_bytes(context, shape, pass);
    case Path::library:
      return conv2d_library_workspace_bytes<T>(context, shape, pass);
    case Path::im2col:
      return conv2d_im2col_workspace_bytes(shape);
    default:
      return pass == ConvPass::backward_filter ? conv2d_direct_filter_workspace_bytes(shape)
                                               : conv2d_direct_correlation_workspace_bytes(shape, pass);
  }
}

template <typename T>
void conv2d_forward(const MathContext& context, const Conv2dShape& shape, const T* x, const T* w,
                    const float* bias, T* y, void* workspace) {
  validate(shape, ConvPass::forward);
  if (shape.batch == 0) return;
  const Path path = choose<T>(context, shape, ConvPass::forward);
  if (path == Path::library) return conv2d_library_forward(context, shape, x, w, bias, y, workspace);
  if constexpr (kIsBfloat16<T>)
    conv2d_widened_forward(context, shape, x, w, bias, y, workspace);
  else if (path == Path::im2col)
    conv2d_im2col_forward(context, shape, x, w, bias, y, workspace);
  else
    conv2d_direct_forward(context.stream, shape, x, w, bias, y, workspace);
}

template <typename T>
void conv2d_backward_data(const MathContext& context, const Conv2dShape& shape, const T* dy, const T* w,
                          T* dx, void* workspace) {
  validate(shape, ConvPass::backward_data);
  if (shape.batch == 0) return;
  const Path path = choose<T>(context, shape, ConvPass::backward_data);
  if (path == Path::library) return conv2d_library_backward_data(context, shape, dy, w, dx, workspace);
  if constexpr (kIsBfloat16<T>)
    conv2d_widened_backward_data(context, shape, dy, w, dx, workspace);
  else if (path == Path::im2col)
    conv2d_im2col_backward_data(context, shape, dy, w, dx, workspace);
  else
    conv2d_direct_backward_data(context.stream, shape, dy, w, dx, workspace);
}

template <typename T>
void conv2d_backward_filter(const MathContext& context, const Conv2dShape& shape, const T* x, const T* dy,
                            float* dw, void* workspace) {
  validate(shape, ConvPass::backward_filter);
  if (shape.batch == 0) {
    LOCKSTEP_CUDA(
        cudaMemsetAsync(dw, 0, static_cast<size_t>(shape.weight_size()) * sizeof(float), context.stream));
    return;
  }
  const Path path = choose<T>(context, shape, ConvPass::backward_filter);
  if (path == Path::library) return conv2d_library_backward_filter(context, shape, x, dy, dw, workspace);
  if constexpr (kIsBfloat16<T>)
    conv2d_widened_backward_filter(context, shape, x, dy, dw, workspace);
  else if (path == Path::im2col)
    conv2d_im2col_backward_filter(context, shape, x, dy, dw, workspace);
  else
    conv2d_direct_backward_filter(context.stream, shape, x, dy, dw, workspace);
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
