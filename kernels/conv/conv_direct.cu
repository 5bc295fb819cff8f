// Direct convolution for few channels: forward, and backward data, which with stride 1 is a forward pass over
// dy with the weights turned round. With 1 or 6 channels there is nothing to vectorise along a pixel, so
// images are the lanes: a block transposes its images to [position][image], computes each output position
// for all of them at once, and transposes finished rows back.
#include <algorithm>

#include "kernels/conv/conv_paths.h"
#include "kernels/lanes.cuh"

namespace lockstep::kernels {
namespace {

// Output channels computed together: the count that computes least beyond the last channel, and of equal ones
// the largest. Two vectors of images times the largest leave registers for the operands.
constexpr int kMostChannels = kVectorRegisters >= 32 ? 10 : 6;

int channel_tile(int channels) {
  int best = 4;
  for (int tile = 6; tile <= kMostChannels; tile += 2)
    if ((channels + tile - 1) / tile * tile <= (channels + best - 1) / best * best) best = tile;
  return best;
}

// A correlation with any stride, bias or none; padding may be negative (backward data with padding >=
// kernel).
struct Correlation {
  int64_t batch;
  int height, width, in_channels;
  int out_height, out_width, out_channels;
  int kernel_height, kernel_width, stride, pad_height, pad_width;
  int rows_per_block;  // output rows that a block computes

  __host__ __device__ int64_t in_row() const { return int64_t{width} * in_channels; }
  __host__ __device__ int64_t out_row() const { return int64_t{out_width} * out_channels; }
  // The scratch memory of a block for one image: the input rows under the kernel, and an output row with room
  // for a whole tile of channels at its end.
  __host__ __device__ int64_t scratch_size() const {
    return kernel_height * in_row() + out_row() + kMostChannels;
  }
};

// Kernel rows are taken as many at a time as the input that they cover at one position fits the nearest
// cache; the sums wait in the output row meanwhile.
constexpr int64_t kCacheBytes = 32 << 10;

// Taps [begin, end) of a kernel that fall inside [0, size) when its first tap lies at `first`.
struct Taps {
  int begin, end;
  __device__ Taps(int first, int kernel, int size)
      : begin(first < 0 ? -first : 0), end(first + kernel > size ? size - first : kernel) {}
};

// sum[channel][vector] += value[step][vector] * weight[step][channel] over the steps, which are neighbours.
template <typename Group, int kTile, int kVectors>
__device__ void add_products(typename Group::Lanes (&sum)[kTile][kVectors], const float* value,
                             const float* weight, int steps) {
  for (int step = 0; step < steps; ++step) {
    typename Group::Lanes v[kVectors];
    LOCKSTEP_UNROLL
    for (int i = 0; i < kVectors; ++i) v[i] = Group::load(value + i * Group::kLanes);
    LOCKSTEP_UNROLL
    for (int t = 0; t < kTile; ++t) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < kVectors; ++i) sum[t][i] += v[i] * weight[t];
    }
    value += kVectors * Group::kLanes;
    weight += kTile;
  }
}

// Output row `oy`, [position][channel][image], from input rows in a ring: row y lies in slot y %
// kernel_height. w is what pack_weights writes.
template <typename Group, int kTile, int kVectors>
__device__ void correlate_row(const Correlation& s, int oy, const float* ring, const float* w, float* row) {
  constexpr int kPitch = kVectors * Group::kLanes;  // from one position to the next
  const int tiles = (s.out_channels + kTile - 1) / kTile;
  const int64_t tap_pitch = int64_t{s.in_channels} * kTile;
  const int64_t tile_pitch = s.kernel_height * s.kernel_width * tap_pitch;
  const float* const bias = w + tiles * tile_pitch;
  const int64_t tap_row_bytes = int64_t{s.kernel_width} * s.in_channels * kPitch * int64_t{sizeof(float)};
  const int tap_rows = static_cast<int>(kCacheBytes / tap_row_bytes < 1 ? 1 : kCacheBytes / tap_row_bytes);
  const int top = oy * s.stride - s.pad_height;
  const Taps ky(top, s.kernel_height, s.height);
  int tap_row = ky.begin;
  do {
    const int tap_end = tap_row + tap_rows < ky.end ? tap_row + tap_rows : ky.end;
    const int first_slot = (top + tap_row) % s.kernel_height;
    for (int ox = 0; ox < s.out_width; ++ox) {
      const int left = ox * s.stride - s.pad_width;
      const Taps kx(left, s.kernel_width, s.width);
      const float* const in = ring + int64_t{left + kx.begin} * s.in_channels * kPitch;
      for (int tile = 0; tile < tiles; ++tile) {
        float* const out = row + (ox * s.out_channels + tile * kTile) * kPitch;
        typename Group::Lanes sum[kTile][kVectors];
        LOCKSTEP_UNROLL
        for (int t = 0; t < kTile; ++t) {
          LOCKSTEP_UNROLL
          for (int v = 0; v < kVectors; ++v)
            sum[t][v] = tap_row == ky.begin ? Group::broadcast(bias[tile * kTile + t])
                                            : Group::load(out + t * kPitch + v * Group::kLanes);
        }
        const float* weight = w + tile * tile_pitch + (tap_row * s.kernel_width + kx.begin) * tap_pitch;
        int slot = first_slot;
        for (int tap = tap_row; tap < tap_end; ++tap) {
          add_products<Group>(sum, in + slot * s.in_row() * kPitch, weight,
                              (kx.end - kx.begin) * s.in_channels);
          weight += s.kernel_width * tap_pitch;
          if (++slot == s.kernel_height) slot = 0;
        }
        LOCKSTEP_UNROLL
        for (int t = 0; t < kTile; ++t) {
          if (tile * kTile + t >= s.out_channels) break;
          LOCKSTEP_UNROLL
          for (int v = 0; v < kVectors; ++v) Group::store(out + t * kPitch + v * Group::kLanes, sum[t][v]);
        }
      }
    }
    tap_row = tap_end;
  } while (tap_row < ky.end);
}

// Output rows [row, end) of the images that x and y point at, at most kVectors groups of lanes of them.
template <typename Group, int kTile, int kVectors>
__device__ void correlate_rows(const Correlation& s, int present, int row, int end, const float* x,
                               const float* w, float* y, float* scratch) {
  constexpr int kLanes = Group::kLanes;
  constexpr int kPitch = kVectors * kLanes;
  const int64_t in_size = s.in_row() * s.height;
  const int64_t out_size = s.out_row() * s.out_height;
  float* const finished = scratch + s.kernel_height * s.in_row() * kPitch;
  const auto lanes_present = [present](int v) {
    const int left = present - v * kLanes;
    return left < 0 ? 0 : left < kLanes ? left : kLanes;
  };
  int next = 0;  // input row
  for (int oy = row; oy < end; ++oy) {
    const int top = oy * s.stride - s.pad_height;
    for (next = next < top ? top : next; next < top + s.kernel_height && next < s.height; ++next)
      for (int v = 0; v < kVectors; ++v)
        Group::gather(x + v * kLanes * in_size + next * s.in_row(), in_size, lanes_present(v), s.in_row(),
                      scratch + (next % s.kernel_height) * s.in_row() * kPitch + v * kLanes, kPitch);
    correlate_row<Group, kTile, kVectors>(s, oy, scratch, w, finished);
    for (int v = 0; v < kVectors; ++v)
      Group::scatter(finished + v * kLanes, kPitch, s.out_row(), y + v * kLanes * out_size + oy * s.out_row(),
                     out_size, lanes_present(v));
  }
}

// Block (g, r): the g-th kBlockImages images, the r-th run of output rows. Few images use fewer vectors.
constexpr int kBlockImages = 32;

template <int kThreads, int kTile>
__global__ void correlate_kernel(Correlation s, const float* x, const float* w, float* y, float* scratch) {
  using Group = LaneGroup<kThreads>;
  constexpr int kImages = Group::kVectors * Group::kLanes;
  static_assert(kBlockImages % kImages == 0);
  const int row = static_cast<int>(blockIdx.y) * s.rows_per_block;
  const int end = row + s.rows_per_block < s.out_height ? row + s.rows_per_block : s.out_height;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
  float* const own = scratch + block * s.scratch_size() * kBlockImages;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBlockImages;
  for (int64_t image = first; image < first + kBlockImages && image < s.batch; image += kImages) {
    const int present = static_cast<int>(s.batch - image < kImages ? s.batch - image : kImages);
    const float* const in = x + image * s.in_row() * s.height;
    float* const out = y + image * s.out_row() * s.out_height;
    if (present > Group::kLanes)
      correlate_rows<Group, kTile, Group::kVectors>(s, present, row, end, in, w, out, own);
    else
      correlate_rows<Group, kTile, 1>(s, present, row, end, in, w, out, own);
  }
}

// Packs weights for the kernel: packed[tile][kernel row][kernel column][in channel][channel in tile], and
// then the bias; both zero beyond the last output channel. For backward data the roles of the channels change
// and taps are turned round.
void pack_weights(cudaStream_t stream, const Conv2dShape& shape, bool turned, int tile, const float* w,
                  const float* bias, float* packed) {
  const int in_channels = turned ? shape.out_channels : shape.in_channels;
  const int out_channels = turned ? shape.in_channels : shape.out_channels;
  const int height = shape.kernel_height;
  const int width = shape.kernel_width;
  const int tiles = (out_channels + tile - 1) / tile;
  const int taps = height * width;
  // An element is a tap of an output channel, or a bias.
  launch_elements(stream, int64_t{tiles} * tile * (taps + 1), [=] __device__(int64_t i) {
    const int element = static_cast<int>(i);
    const int out = element % (tiles * tile);
    const int tap = element / (tiles * tile);
    const bool present = out < out_channels;
    if (tap == taps) {
      packed[int64_t{tiles} * tile * taps * in_channels + out] = bias && present ? bias[out] : 0.0f;
      return;
    }
    float* const to = packed + (int64_t{out / tile} * taps + tap) * in_channels * tile + out % tile;
    const int64_t from =
        turned ? int64_t{taps - 1 - tap} * out_channels + out : (int64_t{out} * taps + tap) * in_channels;
    const int64_t step = turned ? int64_t{taps} * out_channels : 1;
    for (int in = 0; in < in_channels; ++in) to[in * tile] = present ? w[from + in * step] : 0.0f;
  });
}

Correlation forward_correlation(const Conv2dShape& s) {
  return {s.batch,
          s.height,
          s.width,
          s.in_channels,
          s.out_height(),
          s.out_width(),
          s.out_channels,
          s.kernel_height,
          s.kernel_width,
          s.stride,
          s.padding,
          s.padding,
          /*rows_per_block=*/0};
}

Correlation backward_correlation(const Conv2dShape& s) {
  return {s.batch,
          s.out_height(),
          s.out_width(),
          s.out_channels,
          s.height,
          s.width,
          s.in_channels,
          s.kernel_height,
          s.kernel_width,
          /*stride=*/1,
          s.kernel_height - 1 - s.padding,
          s.kernel_width - 1 - s.padding,
          /*rows_per_block=*/0};
}

int64_t image_blocks(const Correlation& s) {
  return (s.batch + kBlockImages - 1) / kBlockImages;
}

// Enough blocks for the machine, each as many rows as that allows: neighbouring blocks transpose the rows
// that both see. The result does not depend on it.
Correlation split_rows(Correlation s) {
  constexpr int64_t kWantedBlocks = kOnGpu ? 1024 : 8;
  const int64_t runs = std::clamp<int64_t>(kWantedBlocks / image_blocks(s), 1, s.out_height);
  s.rows_per_block = static_cast<int>((s.out_height + runs - 1) / runs);
  return s;
}

// What pack_weights writes, rounded up so that what follows starts at a cache line.
int64_t packed_size(const Correlation& s) {
  const int tile = channel_tile(s.out_channels);
  const int64_t taps = int64_t{s.kernel_height} * s.kernel_width * s.in_channels;
  return ((s.out_channels + tile - 1) / tile * tile * (taps + 1) + 63) / 64 * 64;
}

dim3 grid(const Correlation& s) {
  return dim3(static_cast<unsigned>(image_blocks(s)),
              static_cast<unsigned>((s.out_height + s.rows_per_block - 1) / s.rows_per_block));
}

template <int kTile>
void launch_correlation(cudaStream_t stream, const Correlation& s, const float* x, const float* packed,
                        float* y, float* scratch) {
  if constexpr (kTile <= kMostChannels)
    launch_blocks<32>([](auto threads) { return correlate_kernel<threads(), kTile>; }, grid(s), stream, s, x,
                      packed, y, scratch);
}

void correlate(cudaStream_t stream, const Correlation& s, const float* x, const float* packed, float* y,
               float* scratch) {
  switch (channel_tile(s.out_channels)) {
    case 4:
      return launch_correlation<4>(stream, s, x, packed, y, scratch);
    case 6:
      return launch_correlation<6>(stream, s, x, packed, y, scratch);
    case 8:
      return launch_correlation<8>(stream, s, x, packed, y, scratch);
    default:
      return launch_correlation<10>(stream, s, x, packed, y, scratch);
  }
}

size_t correlation_workspace_bytes(const Correlation& s) {
  const dim3 blocks = grid(s);
  return sizeof(float) *
         static_cast<size_t>(packed_size(s) + int64_t{blocks.x} * blocks.y * s.scratch_size() * kBlockImages);
}

void forward(const MathContext& context, const Conv2dShape& shape, const float* x, const float* w,
             const float* bias, float* y, void* workspace) {
  const Correlation s = split_rows(forward_correlation(shape));
  float* const packed = static_cast<float*>(workspace);
  pack_weights(context.stream, shape, /*turned=*/false, channel_tile(s.out_channels), w, bias, packed);
  correlate(context.stream, s, x, packed, y, packed + packed_size(s));
}

void backward_data(const MathContext& context, const Conv2dShape& shape, const float* dy, const float* w,
                   float* dx, void* workspace) {
  const Correlation s = split_rows(backward_correlation(shape));
  float* const packed = static_cast<float*>(workspace);
  pack_weights(context.stream, shape, /*turned=*/true, channel_tile(s.out_channels), w, nullptr, packed);
  correlate(context.stream, s, dy, packed, dx, packed + packed_size(s));
}

bool supports(const MathContext& /*context*/, const Conv2dShape& shape, ConvPass pass) {
  return pass != ConvPass::backward_data || shape.stride == 1;
}

size_t workspace_bytes(const MathContext& /*context*/, const Conv2dShape& shape, ConvPass pass) {
  if (pass == ConvPass::backward_filter) return conv2d_direct_filter_workspace_bytes(shape);
  return correlation_workspace_bytes(
      split_rows(pass == ConvPass::forward ? forward_correlation(shape) : backward_correlation(shape)));
}

}  // namespace

const ConvPath<float>& conv2d_direct_path() {
  static const ConvPath<float> path{"direct", supports,      workspace_bytes,
                                    forward,  backward_data, conv2d_direct_backward_filter};
  return path;
}

}  // namespace lockstep::kernels
