// A sum over all elements: a block a chunk, partial sums a thread, then a tree over the block; the block that
// comes last adds the chunks up in their order.
#include "kernels/reduce.h"

#include <algorithm>

#include "kernels/launch.cuh"
#include "kernels/row_sums.cuh"

namespace lockstep::kernels {

namespace {

constexpr int64_t kLeastChunk = 8192;
constexpr int64_t kMostChunks = 512;

int64_t chunk_size(int64_t n) {
  const int64_t size = (n + kMostChunks - 1) / kMostChunks;
  return std::max(kLeastChunk, (size + 63) / 64 * 64);
}

int64_t chunk_count(int64_t n) {
  return std::max<int64_t>(1, (n + chunk_size(n) - 1) / chunk_size(n));
}

}  // namespace

template <int kThreads>
__global__ void reduce_sum_kernel(const float* __restrict__ x, int64_t n, int64_t chunk, float factor,
                                  float* partial, unsigned* ticket, float* __restrict__ sum) {
  const int64_t begin = blockIdx.x * chunk;
  const float* const own = x + begin;
  const float total =
      block_sum<kThreads, 64>(begin + chunk < n ? chunk : n - begin, [own](int64_t i) { return own[i]; });
  if (gridDim.x == 1) {
    if (is_block_leader<kThreads>()) *sum = total * factor;
    return;
  }
  if (is_block_leader<kThreads>()) partial[blockIdx.x] = total;
  if (!is_last_block<kThreads>(ticket, gridDim.x)) return;
  const float whole = block_sum<kThreads, 16>(gridDim.x, [partial](int64_t i) { return partial[i]; });
  if (is_block_leader<kThreads>()) *sum = whole * factor;
}

size_t reduce_sum_workspace_bytes(int64_t n) {
  return static_cast<size_t>(chunk_count(n)) * sizeof(float);
}

void reduce_sum(const float* x, int64_t n, float factor, float* sum, const SumScratch& scratch,
                cudaStream_t stream) {
  launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(reduce_sum_kernel), dim3(static_cast<unsigned>(chunk_count(n))),
                     stream, x, n, chunk_size(n), factor, static_cast<float*>(scratch.workspace),
                     scratch.tickets, sum);
}

}  // namespace lockstep::kernels
