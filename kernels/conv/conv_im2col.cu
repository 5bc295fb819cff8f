// Convolution as a matrix product. im2col writes, for every output position, the input values under the
// kernel as one row; then y = columns w', dw = dy' columns, and for dx the gradient of the columns, dy w, is
// added back to where each came from (col2im). Long batches go in slices, so that the columns stay small.
#include <algorithm>

#include "kernels/bias.h"
#include "kernels/conv/conv_paths.h"
#include "kernels/launch.cuh"
#include "kernels/matmul.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kMostColumnBytes = int64_t{64} << 20;

// What the kernels need of a shape, with the output size worked out.
struct Columns {
  int height, width, channels;
  int out_height, out_width;
  int kernel_height, kernel_width, stride, padding;

  explicit Columns(const Conv2dShape& s)
      : height(s.height),
        width(s.width),
        channels(s.in_channels),
        out_height(s.out_height()),
        out_width(s.out_width()),
        kernel_height(s.kernel_height),
        kernel_width(s.kernel_width),
        stride(s.stride),
        padding(s.padding) {}
  __host__ __device__ int64_t positions() const { return int64_t{out_height} * out_width; }
  __host__ __device__ int64_t row() const { return int64_t{kernel_height} * kernel_width * channels; }
  int64_t image() const { return int64_t{height} * width * channels; }
};

// columns[image, oy, ox][ky, kx, channel]: a thread a value.
__global__ void im2col_kernel(Columns s, int64_t images, const float* x, float* columns) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= images * s.positions() * s.row()) return;
  const int channel = static_cast<int>(i % s.channels);
  const int tap = static_cast<int>(i % s.row() / s.channels);
  const int64_t position = i / s.row();
  const int64_t image = position / s.positions();
  const int out = static_cast<int>(position % s.positions());
  const int y = out / s.out_width * s.stride - s.padding + tap / s.kernel_width;
  const int x_position = out % s.out_width * s.stride - s.padding + tap % s.kernel_width;
  const bool inside = y >= 0 && y < s.height && x_position >= 0 && x_position < s.width;
  columns[i] = inside ? x[((image * s.height + y) * s.width + x_position) * s.channels + channel] : 0.0f;
}

// dx[image, y, x, channel] is the sum over the taps that saw it: a thread a value, so that no two threads add
// to the same place and the order of the sum is fixed.
__global__ void col2im_kernel(Columns s, int64_t images, const float* columns, float* dx) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= images * s.height * s.width * s.channels) return;
  const int channel = static_cast<int>(i % s.channels);
  const int x = static_cast<int>(i / s.channels % s.width);
  const int y = static_cast<int>(i / s.channels / s.width % s.height);
  const int64_t image = i / s.channels / s.width / s.height;
  float sum = 0.0f;
  for (int ky = 0; ky < s.kernel_height; ++ky)
    for (int kx = 0; kx < s.kernel_width; ++kx) {
      const int down = y + s.padding - ky;
      const int right = x + s.padding - kx;
      if (down < 0 || right < 0 || down % s.stride != 0 || right % s.stride != 0) continue;
      const int oy = down / s.stride;
      const int ox = right / s.stride;
      if (oy >= s.out_height || ox >= s.out_width) continue;
      const int64_t position = image * s.positions() + int64_t{oy} * s.out_width + ox;
      sum += columns[position * s.row() + (int64_t{ky} * s.kernel_width + kx) * s.channels + channel];
    }
  dx[i] = sum;
}

constexpr int kThreads = 256;

dim3 blocks(int64_t n) {
  return dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads));
}

int64_t images_per_slice(const Conv2dShape& shape) {
  const Columns s(shape);
  const int64_t bytes = std::max<int64_t>(1, s.positions() * s.row() * int64_t{sizeof(float)});
  return std::clamp<int64_t>(kMostColumnBytes / bytes, 1, shape.batch);
}

// Calls f(first image, images, rows of columns) for each slice of the batch.
template <typename F>
void for_each_slice(const Conv2dShape& shape, F f) {
  const int64_t step = images_per_slice(shape);
  for (int64_t first = 0; first < shape.batch; first += step) {
    const int64_t images = std::min(step, shape.batch - first);
    f(first, images, images * Columns(shape).positions());
  }
}

template <Math kProduct>
MathContext with_product(MathContext context) {
  context.math = kProduct;
  return context;
}

void im2col(cudaStream_t stream, const Columns& s, int64_t images, const float* x, float* columns) {
  launch(im2col_kernel, blocks(images * s.positions() * s.row()), dim3(kThreads), 0, stream, s, images, x,
         columns);
}

bool supports(const MathContext& /*context*/, const Conv2dShape& /*shape*/, ConvPass /*pass*/) {
  return true;
}

size_t workspace_bytes(const MathContext& /*context*/, const Conv2dShape& shape, ConvPass /*pass*/) {
  const Columns s(shape);
  return static_cast<size_t>(images_per_slice(shape) * s.positions() * s.row()) * sizeof(float);
}

template <Math kProduct>
void forward(const MathContext& context, const Conv2dShape& shape, const float* x, const float* w,
             const float* bias, float* y, void* workspace) {
  const Columns s(shape);
  float* const columns = static_cast<float*>(workspace);
  for_each_slice(shape, [&](int64_t first, int64_t images, int64_t rows) {
    im2col(context.stream, s, images, x + first * s.image(), columns);
    matmul(with_product<kProduct>(context), false, true, rows, shape.out_channels, s.row(), columns, w, 0.0f,
           y + first * s.positions() * shape.out_channels);
  });
  if (bias) bias_add(y, bias, shape.batch * s.positions(), shape.out_channels, context.stream);
}

template <Math kProduct>
void backward_data(const MathContext& context, const Conv2dShape& shape, const float* dy, const float* w,
                   float* dx, void* workspace) {
  const Columns s(shape);
  float* const columns = static_cast<float*>(workspace);
  for_each_slice(shape, [&](int64_t first, int64_t images, int64_t rows) {
    matmul(with_product<kProduct>(context), false, false, rows, s.row(), shape.out_channels,
           dy + first * s.positions() * shape.out_channels, w, 0.0f, columns);
    launch(col2im_kernel, blocks(images * s.image()), dim3(kThreads), 0, context.stream, s, images, columns,
           dx + first * s.image());
  });
}

template <Math kProduct>
void backward_filter(const MathContext& context, const Conv2dShape& shape, const float* x, const float* dy,
                     float* dw, void* workspace) {
  const Columns s(shape);
  float* const columns = static_cast<float*>(workspace);
  for_each_slice(shape, [&](int64_t first, int64_t images, int64_t rows) {
    im2col(context.stream, s, images, x + first * s.image(), columns);
    matmul(with_product<kProduct>(context), true, false, shape.out_channels, s.row(), rows,
           dy + first * s.positions() * shape.out_channels, columns, first == 0 ? 0.0f : 1.0f, dw);
  });
}

}  // namespace

const ConvPath<float>& conv2d_im2col_path(Math product) {
  static const ConvPath<float> own{"im2col",
                                   supports,
                                   workspace_bytes,
                                   forward<Math::own>,
                                   backward_data<Math::own>,
                                   backward_filter<Math::own>};
  static const ConvPath<float> library{"im2col and cuBLAS",
                                       supports,
                                       workspace_bytes,
                                       forward<Math::library>,
                                       backward_data<Math::library>,
                                       backward_filter<Math::library>};
  return product == Math::own ? own : library;
}

}  // namespace lockstep::kernels
