// Errors: the names and texts of CUDA, which errors last, and the limits of a launch.
#include <cstring>

#include "kernels/launch.cuh"
#include "tests/hostcuda/cuda_objects.h"

using lockstep::kernels::launch;

namespace {

__global__ void write_index(int* data, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) data[i] = i;
}

// The message of the error that a launch throws; empty where it throws none.
std::string launch_error(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, int* data) {
  try {
    launch(write_index, grid, block, shared_bytes, stream, data, 1);
  } catch (const lockstep::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Error, NamesAndTextsAreCudas) {
  EXPECT_STREQ(cudaGetErrorName(cudaSuccess), "cudaSuccess");
  EXPECT_STREQ(cudaGetErrorString(cudaSuccess), "no error");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorIllegalAddress), "an illegal memory access was encountered");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorPeerAccessNotEnabled), "peer access has not been enabled");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

TEST(Error, TheLastOneIsTheThreadsOwnAndGivenOnce) {
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaGetLastError(), cudaSuccess); }).join();
  EXPECT_CUDA(cudaSetDevice(0));  // success does not clear it
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Launch, RunsEveryThreadOfTheGrid) {
  constexpr int kCount = 10000;
  DeviceInts data(kCount);
  data.set(std::vector<int>(kCount, -1));
  StreamHandle stream;
  launch(write_index, dim3(79), dim3(128), 0, static_cast<cudaStream_t>(stream), data.get(), kCount);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(data.values(), counting(kCount));
}

TEST(Launch, BeyondTheLimitsIsAnErrorThatDoesNotLast) {
  DeviceInts data(1);
  const std::string configuration = "invalid configuration argument";
  for (const dim3 block : {dim3(1025), dim3(0), dim3(1024, 2), dim3(1, 1, 65)})
    EXPECT_NE(launch_error(dim3(1), block, 0, nullptr, data.get()).find(configuration), std::string::npos);
  for (const dim3 grid : {dim3(0), dim3(1, 65536), dim3(1, 1, 65536)})
    EXPECT_NE(launch_error(grid, dim3(1), 0, nullptr, data.get()).find(configuration), std::string::npos);
  EXPECT_NE(launch_error(dim3(1), dim3(1), size_t{1} << 20, nullptr, data.get()).find("invalid argument"),
            std::string::npos);
  (void)cudaGetLastError();
  EXPECT_EQ(launch_error(dim3(1), dim3(1024), 0, nullptr, data.get()), "");
  EXPECT_CUDA(cudaDeviceSynchronize());
}

TEST(Launch, IntoAStreamOfAnotherDeviceIsAnInvalidHandle) {
  SKIP_BELOW_DEVICES(2);
  DeviceInts data(1);
  ASSERT_CUDA(cudaSetDevice(1));
  StreamHandle stream;
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_NE(launch_error(dim3(1), dim3(1), 0, stream, data.get()).find("invalid resource handle"),
            std::string::npos);
  (void)cudaGetLastError();
  // Copies, unlike kernels, may use streams of other devices.
  EXPECT_CUDA(cudaMemsetAsync(data.get(), 0, data.bytes(), stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
}

TEST(HostFunction, MayNotCallCuda) {
  StreamHandle stream;
  cudaError_t status = cudaSuccess;
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void* result) { *static_cast<cudaError_t*>(result) = cudaDeviceSynchronize(); }, &status));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(status, cudaErrorNotPermitted);
}
