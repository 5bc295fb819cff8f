// Devices: how many there are, which one is current, and what they say of themselves.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

TEST(Device, SettingOneThatDoesNotExistIsInvalidDeviceAndKeepsTheCurrentOne) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_GE(count, 1);
  EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 0);
}
