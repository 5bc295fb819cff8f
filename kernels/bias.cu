// Bias over the last dimension. With few channels (LeNet: 6) a loop over channels alone is too short to
// vectorise, so rows are taken several at a time, side by side: a column's channel stays the same from step
// to step. To add, the CPU's one thread has 256 columns (slots), and a thread of a GPU one, or 16 bytes of
// them. The gradient is a sum over rows (kernels/row_sums.cuh).
#include "kernels/bias.h"

#include <algorithm>
#include <numeric>

#include "kernels/float_types.h"
#include "kernels/launch.cuh"
#include "kernels/row_sums.cuh"

namespace lockstep::kernels {

namespace {

constexpr int kSlots = 256;

unsigned ceil_div(int64_t a, int64_t b) {
  return static_cast<unsigned>((a + b - 1) / b);
}

}  // namespace

// The slots of one thread among the `used` first ones: slot, slot + kThreads, ...
template <int kThreads>
struct ThreadSlots {
  static constexpr int kCount = kSlots / kThreads;
  int first;

  __device__ ThreadSlots() : first(kThreads == 1 ? 0 : static_cast<int>(threadIdx.x)) {}
  __device__ int operator[](int j) const { return first + j * kThreads; }
  __device__ int count(int64_t used) const {
    if constexpr (kThreads == 1)
      return used < kSlots ? static_cast<int>(used) : kSlots;
    else
      return first < used ? kCount : 0;
  }
};

// Block (x, y) handles rows [x * block_rows, ...) of the y-th group of at most 256 channels. It takes several
// rows side by side only where the group is all channels: slot s always lies s floats behind the first one.
template <int kThreads, typename T>
__global__ void bias_add_kernel(T* __restrict__ y, const float* __restrict__ bias, int64_t rows,
                                int64_t block_rows, int channels) {
  static_assert(kThreads == 1 || kThreads == kSlots);
  const int first_channel = static_cast<int>(blockIdx.y) * kSlots;
  const int width = channels - first_channel < kSlots ? channels - first_channel : kSlots;
  const int step_rows = width == channels ? kSlots / width : 1;
  const ThreadSlots<kThreads> slots;

  float addend[slots.kCount];
  for (int j = 0; j < slots.kCount; ++j) addend[j] = bias[first_channel + slots[j] % width];

  const int64_t begin = blockIdx.x * block_rows;
  const int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
  for (int64_t row = begin; row < end; row += step_rows) {
    T* target = y + row * channels + first_channel;
    const int64_t left = end - row;
    const int count = slots.count((left < step_rows ? left : step_rows) * width);
    for (int j = 0; j < count; ++j) target[slots[j]] = from_float<T>(to_float(target[slots[j]]) + addend[j]);
  }
}

// The same where 16 bytes are moved at once: `fold` rows count as one, of fold * channels columns, so that a
// thread's columns stay the same from step to step. `rest` rows are left over.
template <int kThreads, typename T>
__global__ void bias_add_packs_kernel(T* __restrict__ y, const float* __restrict__ bias, int64_t rows,
                                      int block_rows, int channels, int fold, int rest) {
  constexpr int kPack = kPackOf<T>;
  const int columns = fold * channels;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * block_rows;
  const auto count = static_cast<int>(rows - first < block_rows ? rows - first : block_rows);
  for_each_row<kThreads, kPack>(count, columns, [=](auto lanes, int column) {
    using Lanes = decltype(lanes);
    typename Lanes::Floats addend;
    for (int i = 0; i < kPack; ++i) addend[i] = bias[(column + i) % channels];
    return [=](int row) {
      T* const target = y + (first + row) * columns + column;
      Lanes::store(target, Lanes::load(target) + addend);
    };
  });
  if (blockIdx.x != 0 || blockIdx.y != 0) return;
  T* const left = y + rows * columns;
  for (int64_t i : block_stride<kThreads>(int64_t{rest} * channels))
    left[i] = from_float<T>(to_float(left[i]) + bias[i % channels]);
}

template <typename T>
void bias_add(T* y, const float* bias, int64_t rows, int channels, cudaStream_t stream) {
  if (rows == 0 || channels == 0) return;
  const int fold = kPackOf<T> / std::gcd(kPackOf<T>, channels);
  if (at_gpu_block_size && are_aligned(y) && rows >= fold) {
    const int packs = fold * channels / kPackOf<T>;
    const int block_rows = std::max(1, 4 * kSlots / packs);
    launch(bias_add_packs_kernel<kSlots, T>, dim3(ceil_div(rows / fold, block_rows), ceil_div(packs, kSlots)),
           dim3(kSlots), 0, stream, y, bias, rows / fold, block_rows, channels, fold,
           static_cast<int>(rows % fold));
    return;
  }
  const int64_t step_rows = kSlots / std::min(kSlots, channels);
  const int64_t block_rows = step_rows * (at_gpu_block_size ? 8 : 64);
  launch_blocks<kSlots>([](auto threads) { return bias_add_kernel<threads(), T>; },
                        dim3(ceil_div(rows, block_rows), ceil_div(channels, kSlots)), stream, y, bias, rows,
                        block_rows, channels);
}

// How the rows are summed: few channels are folded, `fold` rows counting as one of fold * channels columns,
// so that a block's tile is wide; the columns of a channel are added up at the end, then the rows left over.
struct FoldedRows {
  int fold, columns, rest;
  RowSlices slices;

  FoldedRows(int64_t rows, int channels)
      : fold(fold_of(channels)),
        columns(fold * channels),
        rest(static_cast<int>(rows % fold)),
        slices(rows / fold, columns) {}
  int64_t partials() const { return int64_t{slices.count} * columns; }

  // As many as fit a tile, and if there are such as give a thread of a GPU whole packs.
  static int fold_of(int channels) {
    const int most = std::max(1, kTileChannels / channels);
    const int step = 8 / std::gcd(8, channels);
    return most >= step ? most / step * step : most;
  }
};

template <int kThreads, typename T>
__global__ void bias_gradient_kernel(FoldedRows all, const T* __restrict__ dy, int channels, float* partial,
                                     unsigned* tickets, float* __restrict__ dbias) {
  const RowSlices slices = all.slices;
  const int columns = all.columns;
  const int64_t slice = blockIdx.x;
  for_each_channel_in_tile<kThreads>(
      tile_of(static_cast<int>(blockIdx.y), columns), [=](auto lanes, int column, bool writes) {
        using Lanes = decltype(lanes);
        const T* source = dy + slices.first(slice) * columns + column;
        const auto sum = sum_rows<kThreads, Lanes>(
            slices.rows_of(slice), [=](int64_t row) { return Lanes::load(source + row * columns); });
        if (writes) Lanes::store(partial + slice * columns + column, sum);
      });
  combine_slices<kThreads>(tickets, columns, [=](const Tile& tile) {
    float* const total = all.fold == 1 ? dbias : partial + slices.count * static_cast<int64_t>(columns);
    for_each_channel_in_tile<kThreads>(tile, [=](auto lanes, int column, bool writes) {
      using Lanes = decltype(lanes);
      const auto sum = sum_rows<kThreads, Lanes>(
          slices.count, [=](int64_t s) { return Lanes::load(partial + s * columns + column); });
      if (writes) Lanes::store_any(total + column, sum);
    });
    if (all.fold == 1) return;
    __syncthreads();
    const T* const left = dy + slices.rows * columns;
    for (int64_t c : block_stride<kThreads>(channels)) {
      float sum = 0;
      for (int row = 0; row < all.fold; ++row) sum += total[row * channels + c];
      for (int row = 0; row < all.rest; ++row) sum += to_float(left[row * channels + c]);
      dbias[c] = sum;
    }
  });
}

size_t bias_gradient_workspace_bytes(int64_t rows, int channels) {
  if (channels == 0) return 0;
  const FoldedRows all(rows, channels);
  return static_cast<size_t>(all.partials() + all.columns) * sizeof(float);
}

template <typename T>
void bias_gradient(const T* dy, float* dbias, int64_t rows, int channels, const SumScratch& scratch,
                   cudaStream_t stream) {
  if (channels == 0) return;
  const FoldedRows all(rows, channels);
  launch_row_sums<T>([](auto threads) { return bias_gradient_kernel<threads(), T>; }, all.slices, all.columns,
                     are_aligned(dy), stream, all, dy, channels, static_cast<float*>(scratch.workspace),
                     scratch.tickets, dbias);
}

#define LOCKSTEP_INSTANTIATE(T)                                         \
  template void bias_add(T*, const float*, int64_t, int, cudaStream_t); \
  template void bias_gradient(const T*, float*, int64_t, int, const SumScratch&, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
