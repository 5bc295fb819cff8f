// The built-in variables, and that a launch runs every thread of every block exactly once.
#include <gtest/gtest.h>

#include "kernels/launch.cuh"
#include "tests/kernels/device_buffer.h"

namespace {

using lockstep::kernels::launch;
using lockstep::test::DeviceBuffer;

__device__ int64_t linear_index(uint3 index, dim3 extent) {
  return (static_cast<int64_t>(index.z) * extent.y + index.y) * extent.x + index.x;
}

// Every thread writes all that it knows about itself at its place in the whole grid.
__global__ void write_indices(unsigned* out, int* runs) {
  const int64_t threads = static_cast<int64_t>(blockDim.x) * blockDim.y * blockDim.z;
  const int64_t place = linear_index(blockIdx, gridDim) * threads + linear_index(threadIdx, blockDim);
  const unsigned values[] = {threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z,
                             blockDim.x,  blockDim.y,  blockDim.z,  gridDim.x,  gridDim.y,  gridDim.z};
  for (int i = 0; i < 12; ++i) out[place * 12 + i] = values[i];
  ++runs[place];
}

void expect_indices(dim3 grid, dim3 block) {
  const size_t threads = static_cast<size_t>(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
  const DeviceBuffer<unsigned> out(threads * 12, 0u);
  const DeviceBuffer<int> runs(threads, 0);
  launch(write_indices, grid, block, 0, nullptr, out.data(), runs.data());
  const std::vector<unsigned> found = out.to_host();
  EXPECT_EQ(runs.to_host(), std::vector<int>(threads, 1));
  std::vector<unsigned> wanted;
  for (unsigned bz = 0; bz < grid.z; ++bz)
    for (unsigned by = 0; by < grid.y; ++by)
      for (unsigned bx = 0; bx < grid.x; ++bx)
        for (unsigned tz = 0; tz < block.z; ++tz)
          for (unsigned ty = 0; ty < block.y; ++ty)
            for (unsigned tx = 0; tx < block.x; ++tx)
              wanted.insert(wanted.end(),
                            {tx, ty, tz, bx, by, bz, block.x, block.y, block.z, grid.x, grid.y, grid.z});
  EXPECT_EQ(found, wanted);
}

TEST(KernelIndex, NamesEveryThreadOfAOneDimensionalGrid) {
  expect_indices(7, 96);
}
TEST(KernelIndex, NamesEveryThreadOfAThreeDimensionalGridAndBlock) {
  expect_indices({5, 3, 2}, {4, 3, 5});
}
TEST(KernelIndex, NamesEveryBlockOfOneThread) {
  expect_indices({13, 4, 3}, 1);
}
TEST(KernelIndex, NamesEveryThreadOfTheLargestBlock) {
  expect_indices(2, {8, 16, 8});
}
TEST(KernelIndex, FollowsTheShapeFromLaunchToLaunch) {
  expect_indices(2, {6, 2, 1});
  expect_indices(2, {2, 6, 1});
}

struct Parameters {
  float scale;
  int offset;
};

__global__ void write_parameters(Parameters by_value, const float* in, float* out) {
  if (threadIdx.x == 0) *out = *in * by_value.scale + static_cast<float>(by_value.offset);
}

TEST(KernelIndex, ParametersAreCopiedAtTheLaunch) {
  const DeviceBuffer<float> in({3.0f}), out({0.0f});
  Parameters parameters{2.0f, 1};
  launch(write_parameters, 1, 32, 0, nullptr, parameters, in.data(), out.data());
  parameters = {100.0f, 100};
  EXPECT_EQ(out.to_host()[0], 7.0f);
}

__global__ void return_early(int* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  out[i] = i;
}

TEST(KernelIndex, ThreadsMayReturnEarly) {
  constexpr int kCount = 1000;
  const DeviceBuffer<int> out(kCount, -1);
  launch(return_early, 8, 128, 0, nullptr, out.data(), kCount);
  const std::vector<int> found = out.to_host();
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(found[i], i);
}

}  // namespace
