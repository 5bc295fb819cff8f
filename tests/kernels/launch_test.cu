// What a launch takes for its own failure, and what it leaves alone.
#include "kernels/launch.cuh"

#include "kernels/elementwise.h"
#include "tests/error_of.h"
#include "tests/kernels/device_buffer.h"

namespace lockstep::kernels {
namespace {

__global__ void write_seven(float* x) {
  *x = 7.0f;
}

TEST(Launch, IsNotBlamedForAnErrorThatItsCallerLeft) {
  const test::DeviceBuffer<float> x(1, 0.0f);
  ASSERT_EQ(cudaSetDevice(12345), cudaErrorInvalidDevice);
  EXPECT_NO_THROW(launch(write_seven, 1, 1, 0, nullptr, x.data()));
  EXPECT_NO_THROW(add(x.data(), x.data(), x.data(), 1, nullptr));
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice) << "the caller's error is the caller's to find";
  EXPECT_EQ(x.to_host()[0], 14.0f);
}

TEST(Launch, OfAnImpossibleBlockThrowsAndLeavesNoErrorBehind) {
  const test::DeviceBuffer<float> x(1, 0.0f);
  const std::string error = error_of([&] { launch(write_seven, 1, 4096, 0, nullptr, x.data()); });
  EXPECT_NE(error.find("cudaErrorInvalid"), std::string::npos) << error;
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace lockstep::kernels
