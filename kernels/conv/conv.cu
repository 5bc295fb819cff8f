// Convolution: validates, and takes the path that conv_policy.h decides for.
#include "kernels/conv/conv.h"

#include <string>
#include <type_traits>

#include "kernels/conv/conv_paths.h"
#include "kernels/conv/conv_policy.h"
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

template <typename T>
constexpr bool kIsFloat = std::is_same_v<T, float>;

const ConvPath<float>& path_of(ConvRoute route, float /*type*/) {
  switch (route) {
    case ConvRoute::direct:
      return conv2d_direct_path();
    case ConvRoute::small_channels:
      return conv2d_small_path();
    case ConvRoute::library:
      return conv2d_library_path<float>();
    case ConvRoute::library_padded:
      return conv2d_padded_path<float>();
    case ConvRoute::columns_library:
      return conv2d_im2col_path(Math::library);
    default:
      return conv2d_im2col_path(Math::own);
  }
}

const ConvPath<__nv_bfloat16>& path_of(ConvRoute route, __nv_bfloat16 /*type*/) {
  switch (route) {
    case ConvRoute::library:
      return conv2d_library_path<__nv_bfloat16>();
    case ConvRoute::library_padded:
      return conv2d_padded_path<__nv_bfloat16>();
    default:
      return conv2d_widened_path();
  }
}

template <typename T>
ConvDecision decision(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  return decide({.shape = shape,
                 .pass = pass,
                 .machine = kOnGpu ? Machine::gpu : Machine::cpu,
                 .math = context.math,
                 .precision = context.precision,
                 .bfloat16 = !kIsFloat<T>},
                [&](const Conv2dShape& s) { return conv2d_library_path<T>().supports(context, s, pass); });
}

template <typename T>
const ConvPath<T>& choose(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  return path_of(decision<T>(context, shape, pass).route, T{});
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

ConvChoice conv2d_choice(const MathContext& context, const Conv2dShape& shape, ConvPass pass, bool bfloat16) {
  check_conv2d(name(pass), shape);
  const ConvDecision made =
      bfloat16 ? decision<__nv_bfloat16>(context, shape, pass) : decision<float>(context, shape, pass);
  if (made.route != ConvRoute::through_float32) return {name_of(made.route), made.why};
  const ConvDecision in_float = decision<float>(context, shape, pass);
  return {std::string("float32: ") + name_of(in_float.route), made.why};
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
