// Direct gradient of the weights for few channels. Images are the lanes again: a block keeps the sums of a
// tile of taps x output channels in registers while it walks over all positions of its images, and adds up
// the lanes once at the end. Blocks write partial gradients, whose number depends on the batch alone; a
// second kernel adds them in order, so that the result does not depend on who computed what.
#include <algorithm>

#include "kernels/conv_paths.h"
#include "kernels/lanes.cuh"

namespace lockstep::kernels {
namespace {

constexpr int kGroupImages = 32;   // the images of one step of a partial gradient
constexpr int kMostPartials = 16;  // partial p takes groups p, p + kMostPartials, ...

int64_t partials(const Conv2dShape& s) {
  const int64_t groups = (s.batch + kGroupImages - 1) / kGroupImages;
  return std::min<int64_t>(groups, kMostPartials);
}

// One block's scratch memory for a lane: the padded input, and dy; each with room for the reads of a tile
// that reaches beyond the last channel, whose sums are dropped.
struct FilterScratch {
  static constexpr int kSlack = 8;
  int64_t input, total;
  __host__ __device__ explicit FilterScratch(const Conv2dShape& s)
      : input(int64_t{s.height + 2 * s.padding} * (s.width + 2 * s.padding) * s.in_channels + kSlack),
        total(input +
              int64_t{(s.height + 2 * s.padding - s.kernel_height) / s.stride + 1} *
                  ((s.width + 2 * s.padding - s.kernel_width) / s.stride + 1) * s.out_channels +
              kSlack) {}
};

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

// Block p: partial[p][weight], the sum over the images of its groups.
template <int kThreads, int kTaps, int kChannels>
__global__ void filter_partials_kernel(Conv2dShape s, int out_height, int out_width, const float* x,
                                       const float* dy, float* partial, float* scratch) {
  using Group = LaneGroup<kThreads>;
  using Lanes = typename Group::Lanes;
  constexpr int kLanes = Group::kLanes;
  const FilterScratch held(s);
  const int64_t x_size = int64_t{s.height} * s.width * s.in_channels;
  const int64_t dy_size = int64_t{out_height} * out_width * s.out_channels;
  const int row_taps = s.kernel_width * s.in_channels;
  const int64_t weights = int64_t{s.out_channels} * s.kernel_height * row_taps;
  float* const own = partial + blockIdx.x * weights;
  float* const x_lanes = scratch + blockIdx.x * held.total * kGroupImages;
  float* const dy_lanes = x_lanes + held.input * kLanes;

  bool first = true;
  for (int64_t group = blockIdx.x; group * kGroupImages < s.batch; group += gridDim.x)
    for (int64_t image = group * kGroupImages; image < (group + 1) * kGroupImages && image < s.batch;
         image += kLanes) {
      const int present = static_cast<int>(s.batch - image < kLanes ? s.batch - image : kLanes);
      gather_padded<kThreads>(s, x + image * x_size, present, x_lanes);
      Group::gather(dy + image * dy_size, dy_size, present, dy_size, dy_lanes, kLanes);
      for (int channel = 0; channel < s.out_channels; channel += kChannels)
        for (int ky = 0; ky < s.kernel_height; ++ky)
          for (int tap = 0; tap < row_taps; tap += kTaps) {
            Lanes sum[kTaps * kChannels] = {};
            const int64_t corner = int64_t{ky} * (s.width + 2 * s.padding) * s.in_channels + tap;
            sum_tile<Group, kTaps, kChannels>(s, out_height, out_width, x_lanes + corner * kLanes,
                                              dy_lanes + channel * kLanes, sum);
            float sums[kTaps * kChannels];
            Group::sum(sum, sums);
            for (int c = 0; c < kChannels && channel + c < s.out_channels; ++c)
              for (int t = 0; t < kTaps && tap + t < row_taps; ++t) {
                float& total = own[((channel + c) * s.kernel_height + ky) * row_taps + tap + t];
                if (threadIdx.x == 0)
                  total = first ? sums[t * kChannels + c] : total + sums[t * kChannels + c];
              }
          }
      first = false;
    }
}

// The tile that computes least beyond the edges; of equal ones the largest.
struct Tile {
  int taps, channels;
};

Tile choose_tile(const Conv2dShape& s) {
  const auto computed = [&](Tile t) {
    const auto round_up = [](int n, int to) { return (n + to - 1) / to * to; };
    return int64_t{round_up(s.kernel_width * s.in_channels, t.taps)} * round_up(s.out_channels, t.channels);
  };
  Tile best{6, 4};
  for (const Tile tile : {Tile{5, 4}, Tile{6, 3}, Tile{5, 3}, Tile{3, 4}})
    if (computed(tile) < computed(best)) best = tile;
  return best;
}

template <int kTaps, int kChannels>
void launch_partials(cudaStream_t stream, const Conv2dShape& s, const float* x, const float* dy,
                     float* partial, float* scratch) {
  launch_blocks<32>([](auto threads) { return filter_partials_kernel<threads(), kTaps, kChannels>; },
                    dim3(static_cast<unsigned>(partials(s))), stream, s, s.out_height(), s.out_width(), x, dy,
                    partial, scratch);
}

int64_t partials_size(const Conv2dShape& s) {
  return (partials(s) * s.weight_size() + 63) / 64 * 64;  // what follows starts at a cache line
}

}  // namespace

size_t conv2d_direct_filter_workspace_bytes(const Conv2dShape& s) {
  return sizeof(float) *
         static_cast<size_t>(partials_size(s) + partials(s) * FilterScratch(s).total * kGroupImages);
}

void conv2d_direct_backward_filter(cudaStream_t stream, const Conv2dShape& shape, const float* x,
                                   const float* dy, float* dw, void* workspace) {
  float* const partial = static_cast<float*>(workspace);
  float* const scratch = partial + partials_size(shape);
  const Tile tile = choose_tile(shape);
  if (tile.taps == 6 && tile.channels == 4)
    launch_partials<6, 4>(stream, shape, x, dy, partial, scratch);
  else if (tile.taps == 6)
    launch_partials<6, 3>(stream, shape, x, dy, partial, scratch);
  else if (tile.taps == 5 && tile.channels == 4)
    launch_partials<5, 4>(stream, shape, x, dy, partial, scratch);
  else if (tile.taps == 5)
    launch_partials<5, 3>(stream, shape, x, dy, partial, scratch);
  else
    launch_partials<3, 4>(stream, shape, x, dy, partial, scratch);

  const int64_t weights = shape.weight_size();
  const int64_t count = partials(shape);
  launch_elements(stream, weights, [=] __device__(int64_t i) {
    float total = partial[i];
    for (int64_t p = 1; p < count; ++p) total += partial[p * weights + i];
    dw[i] = total;
  });
}

}  // namespace lockstep::kernels
