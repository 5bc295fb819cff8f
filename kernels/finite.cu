// A block a chunk counts, and adds what it found once: next to nothing is written, so reading sets the pace.
#include "kernels/finite.h"

#include <cfloat>

#include "kernels/float_types.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {

constexpr int64_t kChunk = 1 << 14;  // ResNet-18's 11 million parameters are 700 blocks

__device__ inline int is_not_finite(float value) {
  return fabsf(value) <= FLT_MAX ? 0 : 1;  // NaN compares with nothing
}

template <int kThreads>
__global__ void count_not_finite_kernel(const float* __restrict__ x, int64_t n, int32_t* __restrict__ count) {
  const int64_t begin = blockIdx.x * kChunk;
  const int64_t end = begin + kChunk < n ? begin + kChunk : n;
  const float* chunk = x + begin;
  int found = 0;
  for (int64_t i : block_stride<kThreads>(end - begin)) found += is_not_finite(chunk[i]);
  found = block_sum<kThreads>(found);
  if (is_block_leader<kThreads>() && found > 0) atomicAdd(count, found);
}

void count_not_finite(const float* x, int64_t n, int32_t* count, cudaStream_t stream) {
  if (n == 0) return;
  launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(count_not_finite_kernel),
                     dim3(static_cast<unsigned>((n + kChunk - 1) / kChunk)), stream, x, n, count);
}

// A thread takes a row.
template <int kThreads, typename T>
__global__ void first_row_without_largest_kernel(const T* __restrict__ logits, int64_t rows, int classes,
                                                 int32_t first_row, int32_t* __restrict__ row) {
  constexpr int64_t kRows = 256;
  const int64_t begin = blockIdx.x * kRows;
  const int64_t count = begin + kRows < rows ? kRows : rows - begin;
  for (int64_t i : block_stride<kThreads>(count)) {
    const T* z = logits + (begin + i) * classes;
    float largest = to_float(z[0]);
    bool nan = largest != largest;
    for (int c = 1; c < classes; ++c) {
      const float v = to_float(z[c]);
      nan |= v != v;
      largest = v > largest ? v : largest;
    }
    if (nan || is_not_finite(largest)) atomicMin(row, first_row + static_cast<int32_t>(begin + i));
  }
}

template <typename T>
void first_row_without_largest(const T* logits, int64_t rows, int classes, int32_t first_row, int32_t* row,
                               cudaStream_t stream) {
  if (rows == 0) return;
  launch_blocks<256>([](auto threads) { return first_row_without_largest_kernel<threads(), T>; },
                     dim3(static_cast<unsigned>((rows + 255) / 256)), stream, logits, rows, classes,
                     first_row, row);
}

#define LOCKSTEP_INSTANTIATE(T) \
  template void first_row_without_largest(const T*, int64_t, int, int32_t, int32_t*, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
