// Direct convolution for few channels: forward, and backward data, which with stride 1 is a forward pass over
// dy with the weights turned round. With 1 or 6 channels there is nothing to vectorise along a pixel, so
// images are the lanes: a block transposes its images to [position][image], computes each output position
// for all of them at once, and transposes finished rows back.
#include <algorithm>

#include "kernels/conv_paths.h"
#include "kernels/lanes.cuh"

namespace lockstep::kernels {
namespace {

// A correlation with any stride, bias or none; padding may be negative (backward data with padding >=
// kernel).
struct Correlation {
  int64_t batch;
  int height, width, in_channels;
  int out_height, out_width, out_channels;
  int kernel_height, kernel_width, stride, pad_height, pad_width;
  int rows_per_block;  // output rows that a block computes

  // The input rows that a block may need, and the scratch memory for one lane of it: those, and an output
  // row.
  __host__ __device__ int64_t rows_held() const {
    const int rows = (rows_per_block - 1) * stride + kernel_height;
    return rows < height ? rows : height;
  }
  __host__ __device__ int64_t scratch_size() const {
    return rows_held() * width * in_channels + int64_t{out_width} * out_channels;
  }
};

// Output channels computed together: with kRegisterVectors vectors of images they fill the registers.
int channel_tile(int channels) {
  return (channels + 5) / 6 * 6 <= (channels + 3) / 4 * 4 ? 6 : 4;
}

// Taps [begin, end) of a kernel that fall inside [0, size) when its first tap lies at `first`.
struct Taps {
  int begin, end;
  __device__ Taps(int first, int kernel, int size)
      : begin(first < 0 ? -first : 0), end(first + kernel > size ? size - first : kernel) {}
};

// Rows [row, end) of the images [image, image + present), kVectors groups of lanes of them.
template <int kThreads, int kTile, int kVectors>
__device__ void correlate_rows(const Correlation& s, int64_t image, int64_t present, int row, int end,
                               const float* x, const float* w, const float* bias, float* y, float* scratch) {
  using Group = LaneGroup<kThreads>;
  using Lanes = typename Group::Lanes;
  constexpr int kLanes = Group::kLanes;
  constexpr int kPitch = kVectors * kLanes;  // from one position to the next
  const auto lanes_present = [present](int v) {
    const int64_t left = present - v * kLanes;
    return static_cast<int>(left < 0 ? 0 : left < kLanes ? left : kLanes);
  };

  // Step 1: the input rows that these output rows see, [position][channel][image].
  const int first = row * s.stride - s.pad_height;
  const int last = (end - 1) * s.stride - s.pad_height + s.kernel_height;
  const int held = first < 0 ? 0 : first;
  const int64_t in_row = int64_t{s.width} * s.in_channels;
  const int64_t in_size = in_row * s.height;
  const int64_t needed = ((last < s.height ? last : s.height) - held) * in_row;
  for (int v = 0; v < kVectors; ++v)
    Group::gather(x + (image + v * kLanes) * in_size + held * in_row, in_size, lanes_present(v), needed,
                  scratch + v * kLanes, kPitch);

  const int64_t out_row = int64_t{s.out_width} * s.out_channels;
  const int64_t out_size = out_row * s.out_height;
  float* const finished = scratch + s.rows_held() * in_row * kPitch;
  const int tiles = (s.out_channels + kTile - 1) / kTile;
  const int64_t tap_pitch = int64_t{s.in_channels} * kTile;
  for (int oy = row; oy < end; ++oy) {
    // Step 2: an output row, kTile channels of a position at a time.
    const int top = oy * s.stride - s.pad_height;
    const Taps ky(top, s.kernel_height, s.height);
    for (int ox = 0; ox < s.out_width; ++ox) {
      const int left = ox * s.stride - s.pad_width;
      const Taps kx(left, s.kernel_width, s.width);
      const int steps = (kx.end - kx.begin) * s.in_channels;
      for (int tile = 0; tile < tiles; ++tile) {
        Lanes sum[kTile][kVectors];
        LOCKSTEP_UNROLL
        for (int t = 0; t < kTile; ++t) {
          const int channel = tile * kTile + t;
          const Lanes start = Group::broadcast(bias && channel < s.out_channels ? bias[channel] : 0.0f);
          LOCKSTEP_UNROLL
          for (int v = 0; v < kVectors; ++v) sum[t][v] = start;
        }
        for (int tap = ky.begin; tap < ky.end; ++tap) {
          const float* in =
              scratch + ((top + tap - held) * in_row + (left + kx.begin) * s.in_channels) * kPitch;
          const float* weight = w + ((tile * s.kernel_height + tap) * s.kernel_width + kx.begin) * tap_pitch;
          for (int step = 0; step < steps; ++step) {
            Lanes value[kVectors];
            LOCKSTEP_UNROLL
            for (int v = 0; v < kVectors; ++v) value[v] = Group::load(in + v * kLanes);
            LOCKSTEP_UNROLL
            for (int t = 0; t < kTile; ++t) {
              LOCKSTEP_UNROLL
              for (int v = 0; v < kVectors; ++v) sum[t][v] += value[v] * weight[t];
            }
            in += kPitch;
            weight += kTile;
          }
        }
        float* out = finished + (ox * s.out_channels + tile * kTile) * kPitch;
        LOCKSTEP_UNROLL
        for (int t = 0; t < kTile; ++t) {
          if (tile * kTile + t >= s.out_channels) break;
          LOCKSTEP_UNROLL
          for (int v = 0; v < kVectors; ++v) Group::store(out + t * kPitch + v * kLanes, sum[t][v]);
        }
      }
    }
    // Step 3: the row back to [image][position][channel].
    for (int v = 0; v < kVectors; ++v)
      if (lanes_present(v) > 0)
        Group::scatter(finished + v * kLanes, kPitch, out_row,
                       y + (image + v * kLanes) * out_size + oy * out_row, out_size, lanes_present(v));
  }
}

// Block (g, r): the g-th kBlockImages images, the r-th run of output rows. Few images use fewer vectors.
constexpr int kBlockImages = kOnGpu ? 32 : 64;

template <int kThreads, int kTile>
__global__ void correlate_kernel(Correlation s, const float* x, const float* w, const float* bias, float* y,
                                 float* scratch) {
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
    const auto rows = [&]<int kVectors>() {
      correlate_rows<kThreads, kTile, kVectors>(s, image, present, row, end, x, w, bias, y, own);
    };
    if (present > 2 * Group::kLanes)
      rows.template operator()<Group::kVectors>();
    else if (present > Group::kLanes)
      rows.template operator()<(Group::kVectors < 2 ? Group::kVectors : 2)>();
    else
      rows.template operator()<1>();
  }
}

// Packs weights for the kernel: packed[tile][kernel row][kernel column][in channel][channel in tile], zero
// beyond the last output channel. For backward data the roles of the channels change and taps are turned
// round.
void pack_weights(cudaStream_t stream, const Conv2dShape& shape, bool turned, int tile, const float* w,
                  float* packed) {
  const int in_channels = turned ? shape.out_channels : shape.in_channels;
  const int out_channels = turned ? shape.in_channels : shape.out_channels;
  const int height = shape.kernel_height;
  const int width = shape.kernel_width;
  const int64_t tiles = (out_channels + tile - 1) / tile;
  launch_elements(stream, tiles * tile * height * width * in_channels, [=] __device__(int64_t i) {
    int64_t rest = i;
    const int64_t lane = rest % tile;
    rest /= tile;
    const int64_t in = rest % in_channels;
    rest /= in_channels;
    const int64_t kx = rest % width;
    rest /= width;
    const int64_t ky = rest % height;
    const int64_t out = rest / height * tile + lane;
    if (out >= out_channels)
      packed[i] = 0.0f;
    else if (turned)
      packed[i] = w[((in * height + height - 1 - ky) * width + width - 1 - kx) * out_channels + out];
    else
      packed[i] = w[((out * height + ky) * width + kx) * in_channels + in];
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

int64_t packed_size(const Correlation& s) {
  const int tile = channel_tile(s.out_channels);
  const int64_t size =
      int64_t{(s.out_channels + tile - 1) / tile} * tile * s.kernel_height * s.kernel_width * s.in_channels;
  return (size + 63) / 64 * 64;  // what follows starts at a cache line
}

dim3 grid(const Correlation& s) {
  return dim3(static_cast<unsigned>(image_blocks(s)),
              static_cast<unsigned>((s.out_height + s.rows_per_block - 1) / s.rows_per_block));
}

void correlate(cudaStream_t stream, const Correlation& s, const float* x, const float* packed,
               const float* bias, float* y, float* scratch) {
  if (channel_tile(s.out_channels) == 6)
    launch_blocks<32>([](auto threads) { return correlate_kernel<threads(), 6>; }, grid(s), stream, s, x,
                      packed, bias, y, scratch);
  else
    launch_blocks<32>([](auto threads) { return correlate_kernel<threads(), 4>; }, grid(s), stream, s, x,
                      packed, bias, y, scratch);
}

size_t correlation_workspace_bytes(const Correlation& s) {
  const dim3 blocks = grid(s);
  return sizeof(float) *
         static_cast<size_t>(packed_size(s) + int64_t{blocks.x} * blocks.y * s.scratch_size() * kBlockImages);
}

}  // namespace

void conv2d_direct_forward(cudaStream_t stream, const Conv2dShape& shape, const float* x, const float* w,
                           const float* bias, float* y, void* workspace) {
  const Correlation s = split_rows(forward_correlation(shape));
  float* const packed = static_cast<float*>(workspace);
  pack_weights(stream, shape, /*turned=*/false, channel_tile(s.out_channels), w, packed);
  correlate(stream, s, x, packed, bias, y, packed + packed_size(s));
}

void conv2d_direct_backward_data(cudaStream_t stream, const Conv2dShape& shape, const float* dy,
                                 const float* w, float* dx, void* workspace) {
  const Correlation s = split_rows(backward_correlation(shape));
  float* const packed = static_cast<float*>(workspace);
  pack_weights(stream, shape, /*turned=*/true, channel_tile(s.out_channels), w, packed);
  correlate(stream, s, dy, packed, nullptr, dx, packed + packed_size(s));
}

size_t conv2d_direct_correlation_workspace_bytes(const Conv2dShape& shape, ConvPass pass) {
  return correlation_workspace_bytes(
      split_rows(pass == ConvPass::forward ? forward_correlation(shape) : backward_correlation(shape)));
}

}  // namespace lockstep::kernels
