// CUDA's limits on a launch: what exceeds them is an error at the launch, and the next launch works.
#include <gtest/gtest.h>

#include "kernels/launch.cuh"
#include "tests/kernels/device_buffer.h"

namespace {

using lockstep::kernels::dynamic_shared;
using lockstep::kernels::launch;
using lockstep::test::DeviceBuffer;

__global__ void count_threads(int* count) {
  atomicAdd(count, 1);
}

__global__ void fill_shared(int bytes, int* sum) {
  unsigned char* memory = dynamic_shared<unsigned char>();
  for (int i = static_cast<int>(threadIdx.x); i < bytes; i += static_cast<int>(blockDim.x)) memory[i] = 1;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 0; i < bytes; ++i) *sum += memory[i];
}

// The error that the launch throws names CUDA's own.
std::string error_of_launch(dim3 grid, dim3 block, size_t shared_bytes) {
  const DeviceBuffer<int> count({0});
  std::string message;
  try {
    launch(count_threads, grid, block, shared_bytes, nullptr, count.data());
  } catch (const lockstep::Error& error) {
    message = error.what();
  }
  EXPECT_EQ(count.to_host()[0], 0) << "the kernel ran";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the error was not consumed";
  launch(count_threads, 2, 32, 0, nullptr, count.data());
  EXPECT_EQ(count.to_host()[0], 64) << "the next launch must work";
  return message;
}

TEST(KernelLimits, MoreThan1024ThreadsABlockAreAnInvalidConfiguration) {
  for (const dim3 block : {dim3(1025), dim3(1, 1025), dim3(32, 33), dim3(1, 1, 65), dim3(0)})
    EXPECT_NE(error_of_launch(1, block, 0).find("cudaErrorInvalidConfiguration"), std::string::npos);
}

TEST(KernelLimits, AnEmptyOrTooHighGridIsAnInvalidConfiguration) {
  for (const dim3 grid : {dim3(0), dim3(1, 0), dim3(1, 65536), dim3(1, 1, 65536)})
    EXPECT_NE(error_of_launch(grid, 32, 0).find("cudaErrorInvalidConfiguration"), std::string::npos);
}

TEST(KernelLimits, MoreThan48KilobytesOfSharedMemoryAreAnInvalidValue) {
  EXPECT_NE(error_of_launch(1, 32, (48 << 10) + 1).find("cudaErrorInvalidValue"), std::string::npos);
}

TEST(KernelLimits, AFullBlockWith48KilobytesRuns) {
  const DeviceBuffer<int> sum({0});
  launch(fill_shared, 1, 1024, 48 << 10, nullptr, 48 << 10, sum.data());
  EXPECT_EQ(sum.to_host()[0], 48 << 10);
}

}  // namespace
