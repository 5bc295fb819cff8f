// Atomics under contention from every thread of many blocks.
#include <gtest/gtest.h>

#include "kernels/launch.cuh"
#include "tests/kernels/device_buffer.h"

namespace {

using lockstep::kernels::launch;
using lockstep::test::DeviceBuffer;

constexpr int kBlocks = 64, kThreads = 128, kTotal = kBlocks * kThreads;

__device__ unsigned global_index() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

template <typename T>
__global__ void add_ones(T* sum) {
  atomicAdd(sum, T(1));
}

template <typename T>
void expect_sum() {
  const DeviceBuffer<T> sum({T(0)});
  launch(add_ones<T>, kBlocks, kThreads, 0, nullptr, sum.data());
  EXPECT_EQ(sum.to_host()[0], T(kTotal));
}

TEST(KernelAtomics, AdditionLosesNothingInAnyType) {
  expect_sum<int>();
  expect_sum<unsigned>();
  expect_sum<unsigned long long>();
  expect_sum<float>();
  expect_sum<double>();
}

// Each thread takes a ticket: the old values are all different.
__global__ void take_tickets(int* next, int* taken) {
  const int ticket = atomicAdd(next, 1);
  taken[ticket] += 1;
}

TEST(KernelAtomics, AdditionReturnsTheOldValue) {
  const DeviceBuffer<int> next({0}), taken(kTotal, 0);
  launch(take_tickets, kBlocks, kThreads, 0, nullptr, next.data(), taken.data());
  EXPECT_EQ(taken.to_host(), std::vector<int>(kTotal, 1));
}

__global__ void extremes(int* low, int* high, unsigned* unsigned_high, long long* wide_high) {
  const int value = static_cast<int>(global_index()) - kTotal / 2;
  atomicMin(low, value);
  atomicMax(high, value);
  atomicMax(unsigned_high, global_index());
  atomicMax(wide_high, static_cast<long long>(value) << 20);
}

TEST(KernelAtomics, MinimumAndMaximumAreThoseOfAllThreads) {
  const DeviceBuffer<int> low({0}), high({0});
  const DeviceBuffer<unsigned> unsigned_high({0u});
  const DeviceBuffer<long long> wide_high({0LL});
  launch(extremes, kBlocks, kThreads, 0, nullptr, low.data(), high.data(), unsigned_high.data(),
         wide_high.data());
  EXPECT_EQ(low.to_host()[0], -kTotal / 2);
  EXPECT_EQ(high.to_host()[0], kTotal / 2 - 1);
  EXPECT_EQ(unsigned_high.to_host()[0], kTotal - 1u);
  EXPECT_EQ(wide_high.to_host()[0], (kTotal / 2 - 1LL) << 20);
}

__global__ void bits(unsigned* all, unsigned* any, unsigned* odd) {
  const unsigned lane = threadIdx.x % 32;
  atomicAnd(all, ~(lane % 2 == 0 ? 1u << lane : 0u));
  atomicOr(any, 1u << lane);
  if (global_index() < 32 * 3) atomicXor(odd, 1u << lane);
}

TEST(KernelAtomics, BitOperationsReachEveryBit) {
  const DeviceBuffer<unsigned> all({0xffffffffu}), any({0u}), odd({0u});
  launch(bits, kBlocks, kThreads, 0, nullptr, all.data(), any.data(), odd.data());
  EXPECT_EQ(all.to_host()[0], 0xaaaaaaaau);
  EXPECT_EQ(any.to_host()[0], 0xffffffffu);
  EXPECT_EQ(odd.to_host()[0], 0xffffffffu);
}

// A float maximum by compare-and-swap. The first look is atomic, too: other blocks write at the same time.
__device__ void atomic_max_float(float* address, float value) {
  int* bits = reinterpret_cast<int*>(address);
  int old = atomicOr(bits, 0), assumed;
  do {
    assumed = old;
    if (__int_as_float(assumed) >= value) return;
    old = atomicCAS(bits, assumed, __float_as_int(value));
  } while (old != assumed);
}

__global__ void largest(float* out) {
  atomic_max_float(out, 0.5f * static_cast<float>(global_index() * 2654435761u % 8192u));
}

TEST(KernelAtomics, CompareAndSwapBuildsOthers) {
  const DeviceBuffer<float> out({-1.0f});
  launch(largest, kBlocks, kThreads, 0, nullptr, out.data());
  EXPECT_EQ(out.to_host()[0], 0.5f * 8191.0f);  // an odd factor visits all residues of 8192 = kTotal
}

__global__ void exchange_and_wrap(unsigned* cell, unsigned* sum, unsigned* up, unsigned* down) {
  atomicAdd(sum, atomicExch(cell, global_index()));
  atomicInc(up, 9u);
  atomicDec(down, 9u);
}

TEST(KernelAtomics, ExchangeKeepsEveryValueOnceAndCountersWrap) {
  const DeviceBuffer<unsigned> cell({0u}), sum({0u}), up({0u}), down({0u});
  launch(exchange_and_wrap, kBlocks, kThreads, 0, nullptr, cell.data(), sum.data(), up.data(), down.data());
  EXPECT_EQ(sum.to_host()[0] + cell.to_host()[0], kTotal / 2 * (kTotal - 1u));
  EXPECT_EQ(up.to_host()[0], kTotal % 10u);
  EXPECT_EQ(down.to_host()[0], (10 - kTotal % 10u) % 10u);
}

// The last block to finish, told by a counter, adds what all have written (CUDA's threadFenceReduction).
__global__ void last_block_sums(int* parts, unsigned* finished, int* total) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = static_cast<int>(blockIdx.x);
    __threadfence();
    last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0)
    for (unsigned b = 0; b < gridDim.x; ++b) *total += parts[b];
}

TEST(KernelAtomics, TheLastBlockSeesWhatTheOthersWrote) {
  const DeviceBuffer<int> parts(kBlocks, 0), total({0});
  const DeviceBuffer<unsigned> finished({0u});
  launch(last_block_sums, kBlocks, kThreads, 0, nullptr, parts.data(), finished.data(), total.data());
  EXPECT_EQ(total.to_host()[0], kBlocks * (kBlocks - 1) / 2);
}

}  // namespace
