// Clipping in three launches: a block a chunk sums its squares, one block adds the chunks' sums in their
// order, and a block a chunk scales it as the norm, still on the device, asks for.
#include "kernels/clip.h"

#include "kernels/launch.cuh"

namespace lockstep::kernels {

constexpr int64_t kChunk = 1 << 15;

int64_t clip_by_norm_partials(int64_t n) {
  return (n + kChunk - 1) / kChunk;
}

template <int kThreads>
__global__ void clip_squares_kernel(const float* __restrict__ x, int64_t n, float* __restrict__ partial) {
  const int64_t begin = blockIdx.x * kChunk;
  const float* chunk = x + begin;
  const float sum = block_sum<kThreads, 64>(begin + kChunk < n ? kChunk : n - begin,
                                            [chunk](int64_t i) { return chunk[i] * chunk[i]; });
  if (is_block_leader<kThreads>()) partial[blockIdx.x] = sum;
}

template <int kThreads>
__global__ void clip_norm_kernel(const float* __restrict__ partial, int64_t chunks, float gradient_scale,
                                 float* __restrict__ norm) {
  const float sum = block_sum<kThreads>(chunks, [partial](int64_t i) { return partial[i]; });
  if (is_block_leader<kThreads>()) *norm = gradient_scale * sqrtf(sum);
}

template <int kThreads>
__global__ void clip_scale_kernel(const float* __restrict__ norm, float max_norm, int64_t n,
                                  float* __restrict__ x) {
  const float factor = max_norm / (*norm + 1e-6f);
  if (factor >= 1.0f) return;  // a NaN goes on, and into every element
  const int64_t begin = blockIdx.x * kChunk;
  float* chunk = x + begin;
  for (int64_t i : block_stride<kThreads>(begin + kChunk < n ? kChunk : n - begin)) chunk[i] *= factor;
}

void clip_by_norm(float* x, int64_t n, float max_norm, float gradient_scale, float* partial, float* norm,
                  cudaStream_t stream) {
  const int64_t chunks = clip_by_norm_partials(n);
  if (chunks > 0)
    launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(clip_squares_kernel), dim3(static_cast<unsigned>(chunks)),
                       stream, x, n, partial);
  launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(clip_norm_kernel), dim3(1), stream, partial, chunks,
                     gradient_scale, norm);
  if (chunks > 0)
    launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(clip_scale_kernel), dim3(static_cast<unsigned>(chunks)), stream,
                       norm, max_norm, n, x);
}

}  // namespace lockstep::kernels
