// Convolution of bfloat16 where no path computes it as such: through float32, whose results are rounded to
// bfloat16 once. The workspace holds the float copies, then what the float32 path needs.
#include "kernels/conv/conv_paths.h"
#include "kernels/elementwise.h"

namespace lockstep::kernels {
namespace {

size_t aligned(int64_t floats) {
  return (static_cast<size_t>(floats) * sizeof(float) + 255) / 256 * 256;
}

// Takes float arrays from the front of a workspace, one after the other.
class Floats {
 public:
  Floats(void* workspace, cudaStream_t stream) : next_(static_cast<std::byte*>(workspace)), stream_(stream) {}
  float* take(int64_t size) {
    auto* const array = reinterpret_cast<float*>(next_);
    next_ += aligned(size);
    return array;
  }
  const float* widen(const __nv_bfloat16* values, int64_t size) {
    float* const array = take(size);
    cast(values, array, size, stream_);
    return array;
  }
  void* rest() const { return next_; }

 private:
  std::byte* next_;
  cudaStream_t stream_;
};

bool supports(const MathContext& /*context*/, const Conv2dShape& /*shape*/, ConvPass /*pass*/) {
  return true;
}

size_t workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  const size_t weights = pass == ConvPass::backward_filter ? 0 : aligned(shape.weight_size());
  return aligned(shape.input_size()) + weights + aligned(shape.output_size()) +
         conv2d_workspace_bytes<float>(context, shape, pass);
}

void forward(const MathContext& context, const Conv2dShape& shape, const __nv_bfloat16* x,
             const __nv_bfloat16* w, const float* bias, __nv_bfloat16* y, void* workspace) {
  Floats floats(workspace, context.stream);
  const float* const wide_x = floats.widen(x, shape.input_size());
  const float* const wide_w = floats.widen(w, shape.weight_size());
  float* const wide_y = floats.take(shape.output_size());
  conv2d_forward(context, shape, wide_x, wide_w, bias, wide_y, floats.rest());
  cast(wide_y, y, shape.output_size(), context.stream);
}

void backward_data(const MathContext& context, const Conv2dShape& shape, const __nv_bfloat16* dy,
                   const __nv_bfloat16* w, __nv_bfloat16* dx, void* workspace) {
  Floats floats(workspace, context.stream);
  const float* const wide_dy = floats.widen(dy, shape.output_size());
  const float* const wide_w = floats.widen(w, shape.weight_size());
  float* const wide_dx = floats.take(shape.input_size());
  conv2d_backward_data(context, shape, wide_dy, wide_w, wide_dx, floats.rest());
  cast(wide_dx, dx, shape.input_size(), context.stream);
}

void backward_filter(const MathContext& context, const Conv2dShape& shape, const __nv_bfloat16* x,
                     const __nv_bfloat16* dy, float* dw, void* workspace) {
  Floats floats(workspace, context.stream);
  const float* const wide_x = floats.widen(x, shape.input_size());
  const float* const wide_dy = floats.widen(dy, shape.output_size());
  conv2d_backward_filter(context, shape, wide_x, wide_dy, dw, floats.rest());
}

}  // namespace

const ConvPath<__nv_bfloat16>& conv2d_widened_path() {
  static const ConvPath<__nv_bfloat16> path{"float32", supports,      workspace_bytes,
                                            forward,   backward_data, backward_filter};
  return path;
}

}  // namespace lockstep::kernels
