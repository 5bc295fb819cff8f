// Clipping in three launches: a block per chunk finds the chunk's norm, one block combines these in their
// order, and a block per chunk scales it as the whole norm, still on the device, asks for. Squares are summed
// in double, where no float's square overflows or vanishes.
#include "kernels/clip.h"

#include "kernels/launch.cuh"

namespace lockstep::kernels {

constexpr int64_t kChunk = 1 << 15;

int64_t clip_by_norm_partials(int64_t n) {
  return (n + kChunk - 1) / kChunk;
}

// The root of the sum of f(i)^2 over [0, n).
template <int kThreads, int kPartials, typename F>
__device__ float norm_of(int64_t n, F f) {
  return static_cast<float>(sqrt(block_sum<kThreads, kPartials>(n, [f](int64_t i) {
    const double v = f(i);
    return v * v;
  })));
}

template <int kThreads>
__global__ void clip_chunks_kernel(const float* __restrict__ x, int64_t n, float* __restrict__ partial) {
  const int64_t begin = blockIdx.x * kChunk;
  const float* chunk = x + begin;
  const float norm =
      norm_of<kThreads, 64>(begin + kChunk < n ? kChunk : n - begin, [chunk](int64_t i) { return chunk[i]; });
  if (is_block_leader<kThreads>()) partial[blockIdx.x] = norm;
}

template <int kThreads>
__global__ void clip_norm_kernel(const float* __restrict__ partial, int64_t chunks, float gradient_scale,
                                 float* __restrict__ norm) {
  const float whole = norm_of<kThreads, 16>(chunks, [partial](int64_t i) { return partial[i]; });
  if (is_block_leader<kThreads>()) *norm = gradient_scale * whole;
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
    launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(clip_chunks_kernel), dim3(static_cast<unsigned>(chunks)), stream,
                       x, n, partial);
  launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(clip_norm_kernel), dim3(1), stream, partial, chunks,
                     gradient_scale, norm);
  if (chunks > 0)
    launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(clip_scale_kernel), dim3(static_cast<unsigned>(chunks)), stream,
                       norm, max_norm, n, x);
}

}  // namespace lockstep::kernels
