// Clipping in two launches: a block a chunk sums the chunk's squares, and the block that comes last adds
// these up in their order; then every element is scaled as the norm, still on the device, asks for. Squares
// are summed in double, where no float's square overflows or vanishes.
#include "kernels/clip.h"

#include "kernels/launch.cuh"
#include "kernels/row_sums.cuh"
#include "kernels/update.h"

namespace lockstep::kernels {

namespace {

constexpr int64_t kChunk = 1 << 14;  // ResNet-18's 11 million parameters are 683 blocks

int64_t chunk_count(int64_t n) {
  return n <= kChunk ? 1 : (n + kChunk - 1) / kChunk;
}

}  // namespace

// The sum of the squares of x[i] over [0, n); a GPU's thread reads 16 bytes at once where kAligned.
template <int kThreads, bool kAligned>
__device__ double sum_of_squares(const float* x, int64_t n) {
  const auto square = [](float value) { return double{value} * double{value}; };
  if constexpr (kThreads > 1 && kAligned) {
    return block_sum<kThreads>((n + 3) / 4, [=](int64_t i) {
      double sum = 0;
      if (4 * i + 4 <= n) {
        const Pack<4> four = load_pack<4>(x + 4 * i);
        for (int j = 0; j < 4; ++j) sum += square(four[j]);
      } else {
        for (int64_t j = 4 * i; j < n; ++j) sum += square(x[j]);
      }
      return sum;
    });
  } else {
    return block_sum<kThreads, 64>(n, [=](int64_t i) { return square(x[i]); });
  }
}

template <int kThreads, bool kAligned>
__global__ void clip_norm_kernel(const float* __restrict__ x, int64_t n, float gradient_scale,
                                 double* partial, unsigned* ticket, float* __restrict__ norm) {
  const int64_t begin = blockIdx.x * kChunk;
  const double squares =
      sum_of_squares<kThreads, kAligned>(x + begin, begin + kChunk < n ? kChunk : n - begin);
  if (is_block_leader<kThreads>()) partial[blockIdx.x] = squares;
  if (!is_last_block<kThreads>(ticket, gridDim.x)) return;
  const double whole = block_sum<kThreads, 16>(gridDim.x, [partial](int64_t i) { return partial[i]; });
  if (is_block_leader<kThreads>()) *norm = gradient_scale * static_cast<float>(sqrt(whole));
}

template <int kThreads, bool kAligned>
__global__ void clip_scale_kernel(GradientClip clip, int64_t n, float* __restrict__ x) {
  const float factor = clip.factor();
  if (factor == 1.0f) return;  // a NaN goes on, and into every element
  constexpr int kPack = kThreads > 1 && kAligned ? 4 : 1;
  const int64_t begin = blockIdx.x * kChunk;
  const int64_t count = begin + kChunk < n ? kChunk : n - begin;
  float* const chunk = x + begin;
  if constexpr (kPack > 1)
    for (int64_t i : block_stride<kThreads>(count / kPack))
      store_pack(chunk + i * kPack, load_pack<kPack>(chunk + i * kPack) * factor);
  const int64_t packed = kPack > 1 ? count / kPack * kPack : 0;
  for (int64_t i : block_stride<kThreads>(count - packed)) chunk[packed + i] *= factor;
}

size_t norm_for_clip_workspace_bytes(int64_t n) {
  return static_cast<size_t>(chunk_count(n)) * sizeof(double);
}

void norm_for_clip(const float* x, int64_t n, float gradient_scale, float* norm, const SumScratch& scratch,
                   cudaStream_t stream) {
  with_constants(
      [&]<bool kAligned>(std::bool_constant<kAligned>) {
        launch_blocks<256>([](auto threads) { return clip_norm_kernel<threads(), kAligned>; },
                           dim3(static_cast<unsigned>(chunk_count(n))), stream, x, n, gradient_scale,
                           static_cast<double*>(scratch.workspace), scratch.tickets, norm);
      },
      are_aligned(x));
}

void scale_by_clip(float* x, int64_t n, float max_norm, const float* norm, cudaStream_t stream) {
  with_constants(
      [&]<bool kAligned>(std::bool_constant<kAligned>) {
        launch_blocks<256>([](auto threads) { return clip_scale_kernel<threads(), kAligned>; },
                           dim3(static_cast<unsigned>(chunk_count(n))), stream, GradientClip{norm, max_norm},
                           n, x);
      },
      are_aligned(x));
}

}  // namespace lockstep::kernels
