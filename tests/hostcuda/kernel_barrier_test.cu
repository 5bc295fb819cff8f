// __syncthreads and its reducing forms, with shared memory, divergent loops and threads that have ended.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/launch.cuh"
#include "tests/kernels/device_buffer.h"

namespace {

using lockstep::kernels::dynamic_shared;
using lockstep::kernels::launch;
using lockstep::test::DeviceBuffer;

// The sum of each block's share of x, by halving: a barrier a level.
__global__ void tree_sum(const int* x, int* sums) {
  __shared__ int partial[1024];
  const unsigned t = threadIdx.x;
  partial[t] = x[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (t < half) partial[t] += partial[t + half];
    __syncthreads();
  }
  if (t == 0) sums[blockIdx.x] = partial[0];
}

TEST(KernelBarrier, TreeReductionSumsEveryBlockSize) {
  for (const int threads : {1, 2, 32, 64, 128, 256, 512, 1024}) {
    SCOPED_TRACE(threads);
    constexpr int kBlocks = 9;
    std::vector<int> values(static_cast<size_t>(threads) * kBlocks);
    std::iota(values.begin(), values.end(), 1);
    const DeviceBuffer<int> x(values), sums(kBlocks, 0);
    launch(tree_sum, kBlocks, threads, 0, nullptr, x.data(), sums.data());
    const std::vector<int> found = sums.to_host();
    for (int b = 0; b < kBlocks; ++b)
      EXPECT_EQ(found[b],
                std::accumulate(values.begin() + b * threads, values.begin() + (b + 1) * threads, 0));
  }
}

// Reverses each block's share through dynamic shared memory.
__global__ void reverse_blocks(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const unsigned t = threadIdx.x, n = blockDim.x;
  tile[t] = x[blockIdx.x * n + t];
  __syncthreads();
  y[blockIdx.x * n + t] = tile[n - 1 - t];
}

TEST(KernelBarrier, DynamicSharedMemoryIsOneArrayABlock) {
  constexpr int kThreads = 192, kBlocks = 6;
  std::vector<float> values(kThreads * kBlocks);
  std::iota(values.begin(), values.end(), 0.0f);
  const DeviceBuffer<float> x(values), y(values.size(), 0.0f);
  launch(reverse_blocks, kBlocks, kThreads, kThreads * sizeof(float), nullptr, x.data(), y.data());
  const std::vector<float> found = y.to_host();
  for (int b = 0; b < kBlocks; ++b)
    for (int t = 0; t < kThreads; ++t)
      ASSERT_EQ(found[b * kThreads + t], values[b * kThreads + kThreads - 1 - t]);
}

// Two rows of threads exchange 2-D tiles: out = transpose of in, [n, n] with n a multiple of 16.
__global__ void transpose(const int* in, int* out, int n) {
  __shared__ int tile[16][17];
  const int column = static_cast<int>(blockIdx.x * 16 + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y * 16 + threadIdx.y);
  tile[threadIdx.y][threadIdx.x] = in[row * n + column];
  __syncthreads();
  const int out_column = static_cast<int>(blockIdx.y * 16 + threadIdx.x);
  const int out_row = static_cast<int>(blockIdx.x * 16 + threadIdx.y);
  out[out_row * n + out_column] = tile[threadIdx.x][threadIdx.y];
}

TEST(KernelBarrier, StaticSharedTilesTransposeAMatrix) {
  constexpr int n = 48;
  std::vector<int> values(n * n);
  std::iota(values.begin(), values.end(), 0);
  const DeviceBuffer<int> in(values), out(values.size(), 0);
  launch(transpose, dim3(n / 16, n / 16), dim3(16, 16), 0, nullptr, in.data(), out.data(), n);
  const std::vector<int> found = out.to_host();
  for (int r = 0; r < n; ++r)
    for (int c = 0; c < n; ++c) ASSERT_EQ(found[r * n + c], values[c * n + r]);
}

__global__ void reduce_predicates(int threshold, int* out) {
  const int small = static_cast<int>(threadIdx.x) < threshold;
  const int count = __syncthreads_count(small);
  const int all = __syncthreads_and(small);
  const int any = __syncthreads_or(small);
  int* own = out + threadIdx.x * 3;
  own[0] = count;
  own[1] = all != 0;
  own[2] = any != 0;
}

TEST(KernelBarrier, CountAndOrSeeThePredicatesOfTheWholeBlock) {
  for (const int threads : {1, 33, 160})
    for (const int threshold : {0, 1, threads - 1, threads}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, threshold " << threshold);
      const DeviceBuffer<int> out(static_cast<size_t>(threads) * 3, -1);
      launch(reduce_predicates, 1, threads, 0, nullptr, threshold, out.data());
      const std::vector<int> found = out.to_host();
      for (int t = 0; t < threads; ++t) {
        EXPECT_EQ(found[t * 3], threshold);
        EXPECT_EQ(found[t * 3 + 1], threshold == threads);
        EXPECT_EQ(found[t * 3 + 2], threshold > 0);
      }
    }
}

// Each warp goes a different number of times round a loop without a barrier, then all meet; then all go round
// a loop with barriers as often as a value says that they read from shared memory.
__global__ void divergent_loops(int* out) {
  __shared__ int rounds, total;
  if (threadIdx.x == 0) {
    rounds = 5;
    total = 0;
  }
  __syncthreads();
  int own = 0;
  for (unsigned i = 0; i <= threadIdx.x / 32; ++i) own += static_cast<int>(i);
  for (int r = 0; r < rounds; ++r) {
    if (static_cast<int>(threadIdx.x) % 5 == r) atomicAdd(&total, own);
    __syncthreads();
    if (threadIdx.x % 2 == 0) own += total;
    __syncthreads();
  }
  out[threadIdx.x] = own;
}

TEST(KernelBarrier, LoopsMayDivergeBetweenBarriers) {
  constexpr int kThreads = 128;
  std::vector<int> own(kThreads);
  for (int t = 0; t < kThreads; ++t)
    for (int i = 0; i <= t / 32; ++i) own[t] += i;
  for (int r = 0, total = 0; r < 5; ++r) {
    for (int t = r; t < kThreads; t += 5) total += own[t];
    for (int t = 0; t < kThreads; t += 2) own[t] += total;
  }
  const DeviceBuffer<int> out(kThreads, 0);
  launch(divergent_loops, 3, kThreads, 0, nullptr, out.data());
  EXPECT_EQ(out.to_host(), own);
}

// The upper half ends at once; the others still meet (as on Volta and later).
__global__ void half_leaves(int* out) {
  __shared__ int values[128];
  if (threadIdx.x >= 64) return;
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = values[63 - threadIdx.x];
}

// Threads of one launch pass different numbers of barriers, and the last ones end last.
__global__ void staircase(int* out) {
  __shared__ int level;
  for (unsigned i = 0; i < threadIdx.x; ++i) {
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) level = static_cast<int>(i);
    __syncthreads();
  }
  out[threadIdx.x] = threadIdx.x == 0 ? -1 : level;
}

TEST(KernelBarrierEnded, ThreadsThatHaveEndedAreNotWaitedFor) {
  const DeviceBuffer<int> out(64, -1);
  launch(half_leaves, 4, 128, 0, nullptr, out.data());
  const std::vector<int> found = out.to_host();
  for (int t = 0; t < 64; ++t) EXPECT_EQ(found[t], 63 - t);

  const DeviceBuffer<int> levels(32, -2);
  launch(staircase, 1, 32, 0, nullptr, levels.data());
  const std::vector<int> found_levels = levels.to_host();
  for (int t = 0; t < 32; ++t) EXPECT_EQ(found_levels[t], t - 1);
}

}  // namespace
