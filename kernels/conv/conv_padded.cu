// Convolution by the library with channels of zeros added, so that both numbers of channels are multiples of
// 8: operands are copied wider into the workspace, and what is computed is copied back narrower. What needs
// no padding is not copied.
#include "kernels/bias.h"
#include "kernels/conv/conv_paths.h"
#include "kernels/conv/conv_policy.h"
#include "kernels/float_types.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {
namespace {

// to[r][c] = from[r][c], and 0 for rows or channels that `from` does not have. A thread has 8 channels.
template <typename T>
void widen(const T* from, int64_t rows, int channels, T* to, int64_t to_rows, int to_channels,
           cudaStream_t stream) {
  const int groups = to_channels / 8;
  const T zero = from_float<T>(0);
  launch_elements(stream, to_rows * groups, [=] __device__(int64_t i) {
    const int64_t row = i / groups;
    const auto first = static_cast<int>(i - row * groups) * 8;
    for (int c = first; c < first + 8; ++c)
      to[row * to_channels + c] = row < rows && c < channels ? from[row * channels + c] : zero;
  });
}

// to[r][c] = from[r][c] for the channels that `to` has.
template <typename T>
void narrow(const T* from, int from_channels, T* to, int64_t rows, int channels, cudaStream_t stream) {
  launch_elements(stream, rows, [=] __device__(int64_t row) {
    for (int c = 0; c < channels; ++c) to[row * channels + c] = from[row * from_channels + c];
  });
}

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// The three arrays of a convolution, as [rows][channels].
struct Sizes {
  explicit Sizes(const Conv2dShape& s)
      : x_rows(s.batch * s.height * s.width),
        y_rows(s.batch * s.out_height() * s.out_width()),
        taps(int64_t{s.kernel_height} * s.kernel_width) {}
  int64_t x_rows, y_rows, taps;
};

template <typename T>
class Padded {
 public:
  Padded(const Conv2dShape& from, void* workspace, cudaStream_t on)
      : s(from), wide(padded_to_8(from)), size(from), stream(on), next_(static_cast<std::byte*>(workspace)) {}

  template <typename U>
  U* take(int64_t count) {
    auto* const array = reinterpret_cast<U*>(next_);
    next_ += aligned(static_cast<size_t>(count) * sizeof(U));
    return array;
  }
  const T* widened_x(const T* x) {
    return widened(x, size.x_rows, s.in_channels, size.x_rows, wide.in_channels);
  }
  const T* widened_y(const T* y) {
    return widened(y, size.y_rows, s.out_channels, size.y_rows, wide.out_channels);
  }
  const T* widened_w(const T* w) {
    return widened(w, s.out_channels * size.taps, s.in_channels, wide.out_channels * size.taps,
                   wide.in_channels);
  }
  void* rest() const { return next_; }

  const Conv2dShape s, wide;
  const Sizes size;
  const cudaStream_t stream;

 private:
  const T* widened(const T* from, int64_t rows, int channels, int64_t to_rows, int to_channels) {
    if (rows == to_rows && channels == to_channels) return from;
    T* const to = take<T>(to_rows * to_channels);
    widen(from, rows, channels, to, to_rows, to_channels, stream);
    return to;
  }
  std::byte* next_;
};

template <typename T>
bool supports(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  return conv2d_library_path<T>().supports(context, padded_to_8(shape), pass);
}

template <typename T>
size_t workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  const Conv2dShape wide = padded_to_8(shape);
  return aligned(static_cast<size_t>(wide.input_size()) * sizeof(T)) +
         aligned(static_cast<size_t>(wide.output_size()) * sizeof(T)) +
         aligned(static_cast<size_t>(wide.weight_size()) * sizeof(float)) +
         conv2d_library_path<T>().workspace_bytes(context, wide, pass);
}

template <typename T>
void forward(const MathContext& context, const Conv2dShape& shape, const T* x, const T* w, const float* bias,
             T* y, void* workspace) {
  Padded<T> p(shape, workspace, context.stream);
  const T* const wide_x = p.widened_x(x);
  const T* const wide_w = p.widened_w(w);
  const bool same = p.wide.out_channels == shape.out_channels;
  T* const wide_y = same ? y : p.template take<T>(p.wide.output_size());
  conv2d_library_path<T>().forward(context, p.wide, wide_x, wide_w, nullptr, wide_y, p.rest());
  if (!same) narrow(wide_y, p.wide.out_channels, y, p.size.y_rows, shape.out_channels, context.stream);
  if (bias != nullptr) bias_add(y, bias, p.size.y_rows, shape.out_channels, context.stream);
}

template <typename T>
void backward_data(const MathContext& context, const Conv2dShape& shape, const T* dy, const T* w, T* dx,
                   void* workspace) {
  Padded<T> p(shape, workspace, context.stream);
  const T* const wide_dy = p.widened_y(dy);
  const T* const wide_w = p.widened_w(w);
  const bool same = p.wide.in_channels == shape.in_channels;
  T* const wide_dx = same ? dx : p.template take<T>(p.wide.input_size());
  conv2d_library_path<T>().backward_data(context, p.wide, wide_dy, wide_w, wide_dx, p.rest());
  if (!same) narrow(wide_dx, p.wide.in_channels, dx, p.size.x_rows, shape.in_channels, context.stream);
}

template <typename T>
void backward_filter(const MathContext& context, const Conv2dShape& shape, const T* x, const T* dy, float* dw,
                     void* workspace) {
  Padded<T> p(shape, workspace, context.stream);
  const T* const wide_x = p.widened_x(x);
  const T* const wide_dy = p.widened_y(dy);
  const bool same = p.wide.in_channels == shape.in_channels && p.wide.out_channels == shape.out_channels;
  float* const wide_dw = same ? dw : p.template take<float>(p.wide.weight_size());
  conv2d_library_path<T>().backward_filter(context, p.wide, wide_x, wide_dy, wide_dw, p.rest());
  if (!same)
    narrow(wide_dw, p.wide.in_channels, dw, shape.out_channels * p.size.taps, shape.in_channels,
           context.stream);
}

}  // namespace

template <typename T>
const ConvPath<T>& conv2d_padded_path() {
  static const ConvPath<T> path{"cuDNN, padded", supports<T>,      workspace_bytes<T>,
                                forward<T>,      backward_data<T>, backward_filter<T>};
  return path;
}

template const ConvPath<float>& conv2d_padded_path();
template const ConvPath<__nv_bfloat16>& conv2d_padded_path();

}  // namespace lockstep::kernels
