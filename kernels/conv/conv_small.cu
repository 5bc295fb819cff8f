// Convolution with few channels, for a GPU: a thread computes some output channels of one position, with the
// weights in shared memory, where all threads of a warp read the same ones. Backward data with stride 1 is a
// forward pass over dy with the weights turned round. For the gradient of the weights a block takes some
// images, and its threads the weights; the blocks' sums are then added up as the rows of a matrix.
#include <algorithm>

#include "kernels/bias.h"
#include "kernels/conv/conv_paths.h"
#include "kernels/conv/conv_policy.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;

struct SmallCorrelation {
  int64_t positions;  // outputs, without channels
  int height, width, in_channels;
  int out_height, out_width, out_channels;
  int kernel_height, kernel_width, stride, pad_height, pad_width;
  bool turned;  // weights: [in][taps, the last one first][out] instead of [out][taps][in]

  __host__ __device__ int taps() const { return kernel_height * kernel_width; }
};

int channel_tile(int channels) {
  return channels % 4 != 0 && channels % 6 == 0 ? 6 : 4;
}

template <int kTile>
__global__ void small_correlation_kernel(SmallCorrelation s, const float* __restrict__ x,
                                         const float* __restrict__ w, const float* __restrict__ bias,
                                         float* __restrict__ y) {
  float* const weight = dynamic_shared<float>();  // of the block's tile: [tap][in channel][channel]
  const int first = static_cast<int>(blockIdx.y) * kTile;
  const int taps = s.taps();
  for (int i = static_cast<int>(threadIdx.x); i < taps * s.in_channels * kTile; i += kThreads) {
    const int out = first + i % kTile;
    const int in = i / kTile % s.in_channels;
    const int tap = i / kTile / s.in_channels;
    const int64_t at = s.turned ? (int64_t{in} * taps + (taps - 1 - tap)) * s.out_channels + out
                                : (int64_t{out} * taps + tap) * s.in_channels + in;
    weight[i] = out < s.out_channels ? w[at] : 0.0f;
  }
  __syncthreads();
  const int64_t position = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (position >= s.positions) return;
  const int64_t image = position / (s.out_height * s.out_width);
  const auto place = static_cast<int>(position - image * (s.out_height * s.out_width));
  const int top = place / s.out_width * s.stride - s.pad_height;
  const int left = place % s.out_width * s.stride - s.pad_width;
  const float* const from = x + image * s.height * s.width * s.in_channels;

  float sum[kTile];
  for (int t = 0; t < kTile; ++t)
    sum[t] = bias != nullptr && first + t < s.out_channels ? bias[first + t] : 0.0f;
  for (int ky = 0; ky < s.kernel_height; ++ky) {
    if (top + ky < 0 || top + ky >= s.height) continue;
    for (int kx = 0; kx < s.kernel_width; ++kx) {
      if (left + kx < 0 || left + kx >= s.width) continue;
      const float* const pixel = from + ((top + ky) * s.width + left + kx) * s.in_channels;
      const float* const of_tap = weight + (ky * s.kernel_width + kx) * s.in_channels * kTile;
      for (int in = 0; in < s.in_channels; ++in) {
        const float value = pixel[in];
        LOCKSTEP_UNROLL
        for (int t = 0; t < kTile; ++t) sum[t] += value * of_tap[in * kTile + t];
      }
    }
  }
  float* const to = y + position * s.out_channels + first;
  for (int t = 0; t < kTile; ++t)
    if (first + t < s.out_channels) to[t] = sum[t];
}

void correlate(cudaStream_t stream, const SmallCorrelation& s, const float* x, const float* w,
               const float* bias, float* y) {
  const int tile = channel_tile(s.out_channels);
  const dim3 grid(static_cast<unsigned>((s.positions + kThreads - 1) / kThreads),
                  static_cast<unsigned>((s.out_channels + tile - 1) / tile));
  const size_t shared =
      static_cast<size_t>(s.taps()) * static_cast<size_t>(s.in_channels * tile) * sizeof(float);
  launch(tile == 6 ? small_correlation_kernel<6> : small_correlation_kernel<4>, grid, dim3(kThreads), shared,
         stream, s, x, w, bias, y);
}

void forward(const MathContext& context, const Conv2dShape& s, const float* x, const float* w,
             const float* bias, float* y, void* /*workspace*/) {
  correlate(context.stream,
            {s.batch * s.out_height() * s.out_width(), s.height, s.width, s.in_channels, s.out_height(),
             s.out_width(), s.out_channels, s.kernel_height, s.kernel_width, s.stride, s.padding, s.padding,
             /*turned=*/false},
            x, w, bias, y);
}

void backward_data(const MathContext& context, const Conv2dShape& s, const float* dy, const float* w,
                   float* dx, void* /*workspace*/) {
  correlate(context.stream,
            {s.batch * s.height * s.width, s.out_height(), s.out_width(), s.out_channels, s.height, s.width,
             s.in_channels, s.kernel_height, s.kernel_width, /*stride=*/1, s.kernel_height - 1 - s.padding,
             s.kernel_width - 1 - s.padding, /*turned=*/true},
            dy, w, nullptr, dx);
}

struct SmallFilter {
  int64_t batch, block_images;
  int height, width, in_channels;
  int out_height, out_width, out_channels;
  int kernel_height, kernel_width, stride, padding;

  explicit SmallFilter(const Conv2dShape& s)
      : batch(s.batch),
        block_images((s.batch + kMostBlocks - 1) / kMostBlocks),
        height(s.height),
        width(s.width),
        in_channels(s.in_channels),
        out_height(s.out_height()),
        out_width(s.out_width()),
        out_channels(s.out_channels),
        kernel_height(s.kernel_height),
        kernel_width(s.kernel_width),
        stride(s.stride),
        padding(s.padding) {}
  __host__ __device__ int weights() const {
    return out_channels * kernel_height * kernel_width * in_channels;
  }
  __host__ __device__ int padded_row() const { return (width + 2 * padding) * in_channels; }
  __host__ __device__ int padded_image() const { return (height + 2 * padding) * padded_row(); }
  __host__ __device__ int gradients() const { return out_height * out_width * out_channels; }
  int64_t blocks() const { return (batch + block_images - 1) / block_images; }
  static constexpr int64_t kMostBlocks = 512;
};

// Block b: partial[b][weight], over its images. A thread has every 256th weight, kWeights at most.
template <int kWeights>
__global__ void small_filter_kernel(SmallFilter s, const float* __restrict__ x, const float* __restrict__ dy,
                                    float* __restrict__ partial) {
  float* const input = dynamic_shared<float>();  // an image with its padding
  float* const gradient = input + s.padded_image();
  const int weights = s.weights();
  const auto thread = static_cast<int>(threadIdx.x);

  float sum[kWeights] = {};
  int from[kWeights], of[kWeights];  // where a weight's input and output channel start
  LOCKSTEP_UNROLL
  for (int k = 0; k < kWeights; ++k) {
    const int weight = thread + k * kThreads < weights ? thread + k * kThreads : 0;
    const int tap = weight / s.in_channels;
    const int ky = tap / s.kernel_width % s.kernel_height;
    from[k] = ky * s.padded_row() + tap % s.kernel_width * s.in_channels + weight % s.in_channels;
    of[k] = tap / s.kernel_width / s.kernel_height;
  }

  const int64_t first = blockIdx.x * s.block_images;
  const int64_t last = first + s.block_images < s.batch ? first + s.block_images : s.batch;
  const int row = s.width * s.in_channels;
  for (int64_t image = first; image < last; ++image) {
    __syncthreads();  // nobody reads the image before any more
    for (int i = thread; i < s.padded_image(); i += kThreads) {
      const int y = i / s.padded_row() - s.padding;
      const int at = i % s.padded_row() - s.padding * s.in_channels;
      const bool inside = y >= 0 && y < s.height && at >= 0 && at < row;
      input[i] = inside ? x[(image * s.height + y) * row + at] : 0.0f;
    }
    for (int i = thread; i < s.gradients(); i += kThreads) gradient[i] = dy[image * s.gradients() + i];
    __syncthreads();
    for (int oy = 0; oy < s.out_height; ++oy)
      for (int ox = 0; ox < s.out_width; ++ox) {
        const float* const in = input + oy * s.stride * s.padded_row() + ox * s.stride * s.in_channels;
        const float* const out = gradient + (oy * s.out_width + ox) * s.out_channels;
        LOCKSTEP_UNROLL
        for (int k = 0; k < kWeights; ++k) sum[k] += in[from[k]] * out[of[k]];
      }
  }
  LOCKSTEP_UNROLL
  for (int k = 0; k < kWeights; ++k)
    if (thread + k * kThreads < weights)
      partial[int64_t{blockIdx.x} * weights + thread + k * kThreads] = sum[k];
}

// The partial sums, up to a multiple of 16 bytes; what adds them up has the rest.
size_t partial_bytes(const SmallFilter& s) {
  return (static_cast<size_t>(s.blocks() * s.weights()) * sizeof(float) + 15) / 16 * 16;
}

void backward_filter(const MathContext& context, const Conv2dShape& shape, const float* x, const float* dy,
                     float* dw, void* workspace) {
  const SmallFilter s(shape);
  auto* const partial = static_cast<float*>(workspace);
  const int a_thread = (s.weights() + kThreads - 1) / kThreads;
  launch(a_thread == 1   ? small_filter_kernel<1>
         : a_thread <= 4 ? small_filter_kernel<4>
                         : small_filter_kernel<16>,
         dim3(static_cast<unsigned>(s.blocks())), dim3(kThreads),
         static_cast<size_t>(s.padded_image() + s.gradients()) * sizeof(float), context.stream, s, x, dy,
         partial);
  bias_gradient(partial, dw, s.blocks(), s.weights(),
                {static_cast<std::byte*>(workspace) + partial_bytes(s), context.tickets}, context.stream);
}

bool supports(const MathContext& /*context*/, const Conv2dShape& shape, ConvPass pass) {
  return is_small_convolution(shape, pass);
}

size_t workspace_bytes(const MathContext& /*context*/, const Conv2dShape& shape, ConvPass pass) {
  if (pass != ConvPass::backward_filter) return 0;
  const SmallFilter s(shape);
  return partial_bytes(s) + bias_gradient_workspace_bytes(s.blocks(), s.weights());
}

}  // namespace

const ConvPath<float>& conv2d_small_path() {
  static const ConvPath<float> path{"small channels", supports,      workspace_bytes,
                                    forward,          backward_data, backward_filter};
  return path;
}

}  // namespace lockstep::kernels
