// Bias over the last dimension. With few channels (LeNet: 6) a loop over channels alone is too short to
// vectorise, so a block works on 256 slots: as many whole rows as fit, side by side. A slot's channel stays
// the same from step to step. A GPU thread has one slot, in a register; the CPU's one thread has all 256.
#include "kernels/bias.h"

#include <algorithm>

#include "kernels/float_types.h"
#include "kernels/launch.cuh"

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

template <typename T>
void bias_add(T* y, const float* bias, int64_t rows, int channels, cudaStream_t stream) {
  if (rows == 0 || channels == 0) return;
  const int64_t step_rows = kSlots / std::min(kSlots, channels);
  const int64_t block_rows = step_rows * (kOnGpu ? 8 : 64);
  launch_blocks<kSlots>([](auto threads) { return bias_add_kernel<threads(), T>; },
                        dim3(ceil_div(rows, block_rows), ceil_div(channels, kSlots)), stream, y, bias, rows,
                        block_rows, channels);
}

// A block sums all rows of one group of `group` channels: a sum a slot, then the slots of each channel. On a
// GPU a group is at most 32 channels, one row of a warp's loads, so that more blocks share the work; the CPU
// takes groups as bias_add does, contiguous in memory.
template <int kThreads, typename T>
__global__ void bias_gradient_kernel(const T* __restrict__ dy, float* __restrict__ dbias, int64_t rows,
                                     int channels, int group) {
  static_assert(kThreads == 1 || kThreads == kSlots);
  const int first_channel = static_cast<int>(blockIdx.x) * group;
  const int width = channels - first_channel < group ? channels - first_channel : group;
  const int step_rows = kThreads == 1 && width != channels ? 1 : kSlots / width;
  const ThreadSlots<kThreads> slots;
  const int count = slots.count(step_rows * width);
  const auto offset = [=](int j) -> int64_t {
    if constexpr (kThreads == 1) return j;
    return slots[j] / width * static_cast<int64_t>(channels) + slots[j] % width;
  };

  float sum[slots.kCount] = {};
  int64_t row = 0;
#pragma unroll 4
  for (; row + step_rows <= rows; row += step_rows) {
    const T* source = dy + row * channels + first_channel;
    for (int j = 0; j < count; ++j) sum[j] += to_float(source[offset(j)]);
  }
  const T* source = dy + row * channels + first_channel;
  const int rest = slots.count((rows - row) * width);
  for (int j = 0; j < rest; ++j) sum[j] += to_float(source[offset(j)]);

  __shared__ float slot_sum[kSlots];
  for (int j = 0; j < slots.kCount; ++j) slot_sum[slots[j]] = sum[j];
  __syncthreads();
  for (int64_t c : block_stride<kThreads>(width)) {
    float total = 0;
    for (int r = 0; r < step_rows; ++r) total += slot_sum[r * width + c];
    dbias[first_channel + c] = total;
  }
}

template <typename T>
void bias_gradient(const T* dy, float* dbias, int64_t rows, int channels, cudaStream_t stream) {
  if (channels == 0) return;
  const int group = std::min(channels, kOnGpu ? 32 : kSlots);
  launch_blocks<kSlots>([](auto threads) { return bias_gradient_kernel<threads(), T>; },
                        dim3(ceil_div(channels, group)), stream, dy, dbias, rows, channels, group);
}

#define LOCKSTEP_INSTANTIATE(T)                                         \
  template void bias_add(T*, const float*, int64_t, int, cudaStream_t); \
  template void bias_gradient(const T*, float*, int64_t, int, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
