// Direct gradient of the weights for few channels. Images are the lanes again: a block keeps the sums of a
// tile of taps x output channels in registers while it walks over all positions of its images, and adds up
// the lanes once at the end. Blocks write partial gradients, whose number depends on the batch alone; a
// second kernel adds them in order, so that the result does not depend on who computed what.
#include <algorithm>
#include <array>
#include <utility>

#include "kernels/conv/conv_paths.h"
#include "kernels/lanes.cuh"

namespace lockstep::kernels {
namespace {

// Neighbouring taps (in channels counted as taps) of a kernel row, and output channels, that are summed
// together in registers.
struct Tile {
  int taps, channels;
};

constexpr std::array<Tile, 5> kTiles = kVectorRegisters >= 32
                                           ? std::array<Tile, 5>{{{6, 4}, {5, 4}, {6, 3}, {5, 3}, {3, 4}}}
                                           : std::array<Tile, 5>{{{4, 3}, {3, 4}, {5, 2}, {6, 2}, {3, 3}}};
constexpr int kTilePitch = 32;  // floats between the sums of neighbouring tiles

constexpr int kGroupImages = 32;   // the images of one step of a partial gradient
constexpr int kMostPartials = 16;  // partial p takes groups p, p + kMostPartials, ...

int64_t partials(const Conv2dShape& s) {
  const int64_t groups = (s.batch + kGroupImages - 1) / kGroupImages;
  return std::min<int64_t>(groups, kMostPartials);
}

// Transposes an image group's input to [padded position][channel][image], the padding being zero.
template <int kThreads>
__device__ void gather_padded(const Conv2dShape& s, const float* x, int present, float* to) {
  using Group = LaneGroup<kThreads>;
  constexpr int kLanes = Group::kLanes;
  const int64_t row = int64_t{s.width} * s.in_channels;
  const int64_t padded_row = int64_t{s.width + 2 * s.padding} * s.in_channels;
  const int64_t image = row * s.height;
  if (s.padding == 0) {
    Group::gather(x, image, present, image, to, kLanes);
    return;
  }
  const auto zero = [to](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) Group::store(to + i * kLanes, Group::broadcast(0.0f));
  };
  const int64_t edge = int64_t{s.padding} * s.in_channels;
  int64_t done = 0;
  for (int y = 0; y < s.height; ++y) {
    const int64_t first = (y + s.padding) * padded_row + edge;
    zero(done, first);
    Group::gather(x + y * row, image, present, row, to + first * kLanes, kLanes);
    done = first + row;
  }
  zero(done, (s.height + 2 * s.padding) * padded_row);
}

// sums[tap][channel] over all positions of a group, for kTaps neighbouring taps (in channels counted as taps)
// of one kernel row and kChannels output channels. x and dy point at the tile's first tap and channel.
template <typename Group, int kTaps, int kChannels>
__device__ void sum_tile(const Conv2dShape& s, int out_height, int out_width, const float* x, const float* dy,
                         typename Group::Lanes (&sum)[kTaps * kChannels]) {
  using Lanes = typename Group::Lanes;
  constexpr int kLanes = Group::kLanes;
  const int64_t x_row = int64_t{s.width + 2 * s.padding} * s.in_channels * s.stride * kLanes;
  const int64_t x_step = int64_t{s.stride} * s.in_channels * kLanes;
  const int64_t dy_step = int64_t{s.out_channels} * kLanes;
  for (int oy = 0; oy < out_height; ++oy) {
    const float* in = x + oy * x_row;
    for (int ox = 0; ox < out_width; ++ox) {
      Lanes gradient[kChannels];
      LOCKSTEP_UNROLL
      for (int c = 0; c < kChannels; ++c) gradient[c] = Group::load(dy + c * kLanes);
      LOCKSTEP_UNROLL
      for (int t = 0; t < kTaps; ++t) {
        const Lanes value = Group::load(in + t * kLanes);
        LOCKSTEP_UNROLL
        for (int c = 0; c < kChannels; ++c) sum[t * kChannels + c] += value * gradient[c];
      }
      in += x_step;
      dy += dy_step;
    }
  }
}

// How a gradient is cut into tiles; [output channels][kernel rows][taps of a row] tiles.
struct Tiling {
  Tile tile;
  int channel_tiles, rows, row_tiles;
  int chunk;  // output rows taken at a time

  Tiling(const Conv2dShape& s, Tile t)
      : tile(t),
        channel_tiles((s.out_channels + t.channels - 1) / t.channels),
        rows(s.kernel_height),
        row_tiles((s.kernel_width * s.in_channels + t.taps - 1) / t.taps),
        chunk(chunk_rows(s, t)) {}
  __host__ __device__ int64_t count() const { return int64_t{channel_tiles} * rows * row_tiles; }
  int64_t computed() const { return count() * tile.taps * tile.channels; }

  // As many rows as keep the dy of a tile's channels and the input rows in the nearest cache, in even chunks.
  static int chunk_rows(const Conv2dShape& s, Tile t) {
    constexpr int64_t kCacheFloats = (56 << 10) / int64_t{sizeof(float)};
    const int64_t row =
        (int64_t{s.width + 2 * s.padding} * s.in_channels * s.stride + int64_t{s.out_width()} * t.channels) *
        kVectorLanes;
    const int64_t rows = std::max<int64_t>(1, kCacheFloats / row);
    const int64_t chunks = (s.out_height() + rows - 1) / rows;
    return static_cast<int>((s.out_height() + chunks - 1) / chunks);
  }
};

// The tile that computes least beyond the edges; of equal ones the first.
size_t choose_tile(const Conv2dShape& s) {
  size_t best = 0;
  for (size_t i = 1; i < kTiles.size(); ++i)
    if (Tiling(s, kTiles[i]).computed() < Tiling(s, kTiles[best]).computed()) best = i;
  return best;
}

// One block's scratch memory for an image: the padded input, and a chunk of dy; each with room behind it for
// the reads of a tile that reaches beyond the last channel, and for those of the next position, which g++ 12
// moves ahead of the loop's end where it vectorises over positions. What is read there is never used.
struct FilterScratch {
  static constexpr int kSlack = 8;
  int64_t input, total;
  FilterScratch(const Conv2dShape& s, const Tiling& tiling)
      : input((int64_t{s.height + 2 * s.padding} * (s.width + 2 * s.padding) + s.stride) * s.in_channels +
              kSlack),
        total(input + (int64_t{tiling.chunk} * s.out_width() + 1) * s.out_channels + kSlack) {}
};

// Block p: partial[p][tile][kTilePitch], the sum over the images of its groups.
template <int kThreads, int kTaps, int kChannels>
__global__ void filter_partials_kernel(Conv2dShape s, Tiling tiling, FilterScratch held, int out_height,
                                       int out_width, const float* x, const float* dy, float* partial,
                                       float* scratch) {
  using Group = LaneGroup<kThreads>;
  using Lanes = typename Group::Lanes;
  constexpr int kLanes = Group::kLanes;
  constexpr int kSums = (kTaps * kChannels + kLanes - 1) / kLanes;
  static_assert(kSums * kLanes <= kTilePitch);
  const int64_t x_size = int64_t{s.height} * s.width * s.in_channels;
  const int64_t dy_size = int64_t{out_height} * out_width * s.out_channels;
  const int64_t x_row = int64_t{s.width + 2 * s.padding} * s.in_channels * kLanes;
  const int64_t dy_row = int64_t{out_width} * s.out_channels;
  float* const own = partial + blockIdx.x * tiling.count() * kTilePitch;
  float* const x_lanes = scratch + blockIdx.x * held.total * kGroupImages;
  float* const dy_lanes = x_lanes + held.input * kLanes;

  bool first = true;
  for (int64_t group = blockIdx.x; group * kGroupImages < s.batch; group += gridDim.x)
    for (int64_t image = group * kGroupImages; image < (group + 1) * kGroupImages && image < s.batch;
         image += kLanes) {
      const int present = static_cast<int>(s.batch - image < kLanes ? s.batch - image : kLanes);
      gather_padded<kThreads>(s, x + image * x_size, present, x_lanes);
      for (int row = 0; row < out_height; row += tiling.chunk) {
        const int rows = tiling.chunk < out_height - row ? tiling.chunk : out_height - row;
        Group::gather(dy + image * dy_size + row * dy_row, dy_size, present, rows * dy_row, dy_lanes, kLanes);
        float* total = own;
        for (int channel_tile = 0; channel_tile < tiling.channel_tiles; ++channel_tile)
          for (int ky = 0; ky < tiling.rows; ++ky)
            for (int row_tile = 0; row_tile < tiling.row_tiles; ++row_tile) {
              Lanes sum[kTaps * kChannels] = {};
              sum_tile<Group, kTaps, kChannels>(
                  s, rows, out_width,
                  x_lanes + (int64_t{row} * s.stride + ky) * x_row + row_tile * kTaps * kLanes,
                  dy_lanes + channel_tile * kChannels * kLanes, sum);
              Lanes sums[kSums];
              Group::fold(sum, sums);
              LOCKSTEP_UNROLL
              for (int i = 0; i < kSums; ++i)
                Group::store(total + i * kLanes, first ? sums[i] : Group::load(total + i * kLanes) + sums[i]);
              total += kTilePitch;
            }
        first = false;
      }
    }
}

template <size_t kTile>
void launch_partials(cudaStream_t stream, const Conv2dShape& s, const Tiling& tiling, const float* x,
                     const float* dy, float* partial, float* scratch) {
  launch_blocks<32>(
      [](auto threads) {
        return filter_partials_kernel<threads(), kTiles[kTile].taps, kTiles[kTile].channels>;
      },
      dim3(static_cast<unsigned>(partials(s))), stream, s, tiling, FilterScratch(s, tiling), s.out_height(),
      s.out_width(), x, dy, partial, scratch);
}

}  // namespace

size_t conv2d_direct_filter_workspace_bytes(const Conv2dShape& s) {
  const Tiling tiling(s, kTiles[choose_tile(s)]);
  return sizeof(float) * static_cast<size_t>(partials(s) * (tiling.count() * kTilePitch +
                                                            FilterScratch(s, tiling).total * kGroupImages));
}

void conv2d_direct_backward_filter(const MathContext& context, const Conv2dShape& shape, const float* x,
                                   const float* dy, float* dw, void* workspace) {
  const int64_t count = partials(shape);
  const size_t chosen = choose_tile(shape);
  const Tiling tiling(shape, kTiles[chosen]);
  const int64_t size = tiling.count() * kTilePitch;
  float* const partial = static_cast<float*>(workspace);
  float* const scratch = partial + count * size;
  [&]<size_t... kTile>(std::index_sequence<kTile...>) {
    ((chosen == kTile ? launch_partials<kTile>(context.stream, shape, tiling, x, dy, partial, scratch)
                      : void()),
     ...);
  }(std::make_index_sequence<kTiles.size()>());

  const int row_taps = shape.kernel_width * shape.in_channels;
  launch_elements(context.stream, shape.weight_size(), [=] __device__(int64_t i) {
    const int64_t tap = i % row_taps;
    const int64_t ky = i / row_taps % tiling.rows;
    const int64_t channel = i / row_taps / tiling.rows;
    const Tile t = tiling.tile;
    const int64_t tile = (channel / t.channels * tiling.rows + ky) * tiling.row_tiles + tap / t.taps;
    const int64_t at = tile * kTilePitch + tap % t.taps * t.channels + channel % t.channels;
    float total = partial[at];
    for (int64_t p = 1; p < count; ++p) total += partial[p * size + at];
    dw[i] = total;
  });
}

}  // namespace lockstep::kernels
