// Shuffles and votes: every kind, over whole and partial warps, narrow widths and all value types.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/launch.cuh"
#include "tests/kernels/device_buffer.h"

namespace {

using lockstep::kernels::launch;
using lockstep::test::DeviceBuffer;

constexpr unsigned kFull = 0xffffffffu;

template <typename T>
__global__ void all_shuffles(T* out, int argument, int width) {
  const unsigned t = threadIdx.x;
  const T own = static_cast<T>(t + 100);
  T* place = out + t * 4;
  place[0] = __shfl_sync(kFull, own, argument, width);
  place[1] = __shfl_up_sync(kFull, own, static_cast<unsigned>(argument), width);
  place[2] = __shfl_down_sync(kFull, own, static_cast<unsigned>(argument), width);
  place[3] = __shfl_xor_sync(kFull, own, argument, width);
}

// The lane that each shuffle reads, from CUDA's description (programming guide, warp shuffle functions).
int source_lane(int kind, int lane, int argument, int width) {
  const int first = lane / width * width, last = first + width - 1;
  switch (kind) {
    case 0:
      return first + argument % width;
    case 1:
      return lane - argument < first ? lane : lane - argument;
    case 2:
      return lane + argument > last ? lane : lane + argument;
    default:
      return (lane ^ argument) > last ? lane : lane ^ argument;
  }
}

template <typename T>
void expect_shuffles(int argument, int width) {
  SCOPED_TRACE(testing::Message() << "argument " << argument << ", width " << width);
  constexpr int kThreads = 64;
  const DeviceBuffer<T> out(kThreads * 4, T(0));
  launch(all_shuffles<T>, 1, kThreads, 0, nullptr, out.data(), argument, width);
  const std::vector<T> found = out.to_host();
  for (int t = 0; t < kThreads; ++t)
    for (int kind = 0; kind < 4; ++kind)
      ASSERT_EQ(found[t * 4 + kind],
                static_cast<T>(100 + t / 32 * 32 + source_lane(kind, t % 32, argument, width)))
          << "thread " << t << ", kind " << kind;
}

TEST(KernelWarp, ShufflesReadTheLaneThatCudaNames) {
  for (const int width : {2, 4, 8, 16, 32})
    for (const int argument : {0, 1, 2, 3, 5, 16, 31}) expect_shuffles<int>(argument, width);
}

TEST(KernelWarp, ShufflesCarryEveryType) {
  expect_shuffles<unsigned>(3, 32);
  expect_shuffles<float>(3, 32);
  expect_shuffles<double>(3, 32);
  expect_shuffles<long long>(3, 32);
  expect_shuffles<unsigned long long>(3, 32);
}

__global__ void wide_values(double* doubles, long long* integers) {
  doubles[threadIdx.x] = __shfl_xor_sync(kFull, 1.0 / (threadIdx.x + 3.0), 1);
  integers[threadIdx.x] = __shfl_xor_sync(kFull, -(1LL << 40) - static_cast<long long>(threadIdx.x), 1);
}

TEST(KernelWarp, EightByteValuesArriveWhole) {
  const DeviceBuffer<double> doubles(32, 0.0);
  const DeviceBuffer<long long> integers(32, 0LL);
  launch(wide_values, 1, 32, 0, nullptr, doubles.data(), integers.data());
  const std::vector<double> found = doubles.to_host();
  const std::vector<long long> found_integers = integers.to_host();
  for (int t = 0; t < 32; ++t) {
    EXPECT_EQ(found[t], 1.0 / ((t ^ 1) + 3.0));
    EXPECT_EQ(found_integers[t], -(1LL << 40) - (t ^ 1));
  }
}

// Even and odd lanes shuffle among themselves, a different number of times.
__global__ void partial_masks(int* out) {
  const unsigned lane = threadIdx.x % 32;
  int value = static_cast<int>(lane);
  if (lane % 2 == 0) {
    for (int offset = 16; offset > 1; offset /= 2) value += __shfl_xor_sync(0x55555555u, value, offset);
  } else {
    value = __shfl_sync(0xaaaaaaaau, value, 31);
  }
  out[threadIdx.x] = value;
}

TEST(KernelWarp, PartialMasksMeetAmongThemselves) {
  const DeviceBuffer<int> out(96, -1);
  launch(partial_masks, 1, 96, 0, nullptr, out.data());
  const std::vector<int> found = out.to_host();
  for (int t = 0; t < 96; ++t) EXPECT_EQ(found[t], t % 2 == 0 ? 240 : 31);
}

// Only the lower lanes of the last warp exist.
__global__ void partial_warp(int* out) {
  const unsigned lanes = blockDim.x - threadIdx.x / 32 * 32;
  const unsigned mask = lanes >= 32 ? kFull : (1u << lanes) - 1;
  out[threadIdx.x] = __shfl_sync(mask, static_cast<int>(threadIdx.x), 0);
}

TEST(KernelWarp, TheLastWarpMayBeShort) {
  const DeviceBuffer<int> out(45, -1);
  launch(partial_warp, 1, 45, 0, nullptr, out.data());
  const std::vector<int> found = out.to_host();
  for (int t = 0; t < 45; ++t) EXPECT_EQ(found[t], t / 32 * 32);
}

__global__ void votes(unsigned* out, unsigned bits) {
  const int set = static_cast<int>(bits >> (threadIdx.x % 32) & 1);
  unsigned* own = out + threadIdx.x * 3;
  own[0] = __ballot_sync(kFull, set);
  own[1] = __any_sync(kFull, set) != 0;
  own[2] = __all_sync(kFull, set) != 0;
}

TEST(KernelWarp, VotesSeeAllLanes) {
  for (const unsigned bits : {0u, 1u, 0x80000000u, 0x12345678u, kFull}) {
    SCOPED_TRACE(bits);
    const DeviceBuffer<unsigned> out(64 * 3, 7u);
    launch(votes, 1, 64, 0, nullptr, out.data(), bits);
    const std::vector<unsigned> found = out.to_host();
    for (int t = 0; t < 64; ++t) {
      EXPECT_EQ(found[t * 3], bits);
      EXPECT_EQ(found[t * 3 + 1], bits != 0u);
      EXPECT_EQ(found[t * 3 + 2], bits == kFull);
    }
  }
}

__global__ void partial_votes(unsigned* out) {
  if (threadIdx.x < 12) out[threadIdx.x] = __ballot_sync(0xfffu, threadIdx.x % 3 == 0);
}

TEST(KernelWarp, AVoteCountsTheLanesOfItsMaskOnly) {
  const DeviceBuffer<unsigned> out(12, 0u);
  launch(partial_votes, 1, 32, 0, nullptr, out.data());
  EXPECT_EQ(out.to_host(), std::vector<unsigned>(12, 0x249u));
}

// What one lane writes before __syncwarp, the others read after it.
__global__ void exchange(int* out) {
  __shared__ int values[128];
  for (int round = 0; round < 3; ++round) {
    values[threadIdx.x] = static_cast<int>(threadIdx.x) * (round + 1);
    __syncwarp();
    out[threadIdx.x] = values[threadIdx.x ^ 31];
    __syncwarp();
  }
}

TEST(KernelWarp, SyncwarpOrdersSharedMemory) {
  const DeviceBuffer<int> out(128, 0);
  launch(exchange, 2, 128, 0, nullptr, out.data());
  const std::vector<int> found = out.to_host();
  for (int t = 0; t < 128; ++t) EXPECT_EQ(found[t], (t ^ 31) * 3);
}

template <int kThreads>
__global__ void block_functions(const float* x, float* sums, float* maxima, int n) {
  float sum = 0, largest = -__builtin_huge_valf();
  for (const int64_t i : lockstep::kernels::block_stride<kThreads>(n)) {
    sum += x[i];
    largest = fmaxf(largest, x[i]);
  }
  sums[threadIdx.x] = lockstep::kernels::block_sum<kThreads>(sum);
  maxima[threadIdx.x] = lockstep::kernels::block_max<kThreads>(largest);
}

template <int kThreads>
void expect_block_functions() {
  SCOPED_TRACE(kThreads);
  constexpr int kCount = 1000;  // integers up to 999: the float sum is exact in any order
  std::vector<float> values(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = static_cast<float>((i * 37) % kCount);
  const DeviceBuffer<float> x(values), sums(kThreads, 0.0f), maxima(kThreads, 0.0f);
  launch(block_functions<kThreads>, 1, kThreads, 0, nullptr, x.data(), sums.data(), maxima.data(), kCount);
  EXPECT_EQ(sums.to_host(), std::vector<float>(kThreads, kCount * (kCount - 1) / 2.0f));
  EXPECT_EQ(maxima.to_host(), std::vector<float>(kThreads, kCount - 1.0f));
}

TEST(KernelWarp, BlockSumAndMaximumReachEveryThread) {
  expect_block_functions<1>();
  expect_block_functions<32>();
  expect_block_functions<128>();
  expect_block_functions<1024>();
}

}  // namespace
