#include "core/tensor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include <numeric>

#include "kernels/check.h"
#include "tests/bfloat16.h"
#include "tests/error_of.h"

namespace lockstep {
namespace {

std::vector<float> counting(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

// Whatever the device was busy with: a driver may read the caller's memory until the copy is done.
TEST(Tensor, FromHostHasReadItsValuesWhenItReturns) {
  const Device device = make_devices(1)[0];
  const Tensor made = Tensor::empty({1000}, device);  // the pool's memory is there
  LOCKSTEP_CUDA(cudaLaunchHostFunc(
      device.stream(), [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, nullptr));
  const Tensor tensor = Tensor::from_host(std::vector<float>(1000, 1.0F), {1000}, device);
  EXPECT_EQ(cudaStreamQuery(device.stream()), cudaSuccess) << "the copy is still to come";
  (void)cudaGetLastError();
}

TEST(Tensor, BringsBackWhatWasPutIn) {
  const Device device = make_devices(1)[0];
  EXPECT_EQ(Tensor::from_host(counting(6), {2, 3}, device).to_host<float>(), counting(6));
  EXPECT_EQ(Tensor::from_host<int32_t>({7, -1}, {2}, device).to_host<int32_t>(),
            (std::vector<int32_t>{7, -1}));
  EXPECT_EQ(Tensor::from_host<uint8_t>({0, 255}, {2}, device).to_host<uint8_t>(),
            (std::vector<uint8_t>{0, 255}));
  EXPECT_EQ(Tensor::zeros({3}, device).to_host<float>(), std::vector<float>(3, 0.0f));
}

TEST(Tensor, OfBfloat16HasTwoBytesAnElement) {
  const std::vector<Device> devices = make_devices(2);
  const Tensor x = Tensor::from_host(test::rounded(counting(6)), {3, 2}, devices[0]);
  EXPECT_EQ(x.dtype(), DType::bfloat16);
  EXPECT_EQ(x.bytes(), 12U);
  for (const Device& device : devices)
    EXPECT_EQ(test::widened(x.slice(1, 3).copy_to(device).to_host<__nv_bfloat16>()),
              (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(test::widened(Tensor::zeros({3}, devices[1], DType::bfloat16).to_host<__nv_bfloat16>()),
            std::vector<float>(3, 0.0F));
  EXPECT_EQ(error_of([&] { x.data<float>(); }),
            "a tensor of bfloat16 and shape [3, 2] was read as float32: convert it first");
}

TEST(Tensor, MayBeEmpty) {
  const Device device = make_devices(1)[0];
  const Tensor none = Tensor::zeros({0, 5}, device);
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(none.data<float>(), nullptr);
  EXPECT_TRUE(none.to_host<float>().empty());
  EXPECT_TRUE(none.copy_to(device).to_host<float>().empty());
}

TEST(Tensor, ViewsShareTheirMemory) {
  const Device device = make_devices(1)[0];
  const Tensor whole = Tensor::from_host(counting(12), {4, 3}, device);
  const Tensor rows = whole.slice(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_EQ(rows.to_host<float>(), (std::vector<float>{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(rows.data<float>(), whole.data<float>() + 3);
  EXPECT_EQ(whole.reshape({2, 6}).data<float>(), whole.data<float>());
  rows.copy_from(Tensor::zeros({2, 3}, device));
  EXPECT_EQ(whole.to_host<float>(), (std::vector<float>{0, 1, 2, 0, 0, 0, 0, 0, 0, 9, 10, 11}));
}

TEST(Tensor, CopiesDoNotShareTheirMemory) {
  const std::vector<Device> devices = make_devices(2);
  const Tensor original = Tensor::from_host(counting(5), {5}, devices[0]);
  for (const Device& device : devices) {
    const Tensor copy = original.copy_to(device);
    EXPECT_EQ(copy.device(), device);
    original.copy_from(Tensor::zeros({5}, devices[0]));
    EXPECT_EQ(copy.to_host<float>(), counting(5));
    original.copy_from(copy);
  }
  EXPECT_EQ(original.to_host<float>(), counting(5));
}

TEST(Tensor, SaysWhatIsWrong) {
  const Device device = make_devices(1)[0];
  const Tensor x = Tensor::zeros({4, 3}, device);
  EXPECT_EQ(error_of([&] { x.reshape({5, 3}); }), "reshape: [4, 3] has 12 elements, [5, 3] has 15");
  EXPECT_EQ(error_of([&] { x.slice(2, 5); }), "slice: rows 2 to 5 of a tensor of shape [4, 3]");
  EXPECT_EQ(error_of([&] { x.data<int32_t>(); }),
            "a tensor of float32 and shape [4, 3] was read as int32: convert it first");
  EXPECT_EQ(error_of([&] { x.dim(2); }), "dim(2) of a tensor of shape [4, 3]");
  EXPECT_EQ(error_of([&] { x.item(); }), "item: a tensor of shape [4, 3] has not one element");
  EXPECT_EQ(error_of([&] { x.copy_from(Tensor::zeros({3}, device)); }),
            "copy_from: float32 [3] into float32 [4, 3]");
  EXPECT_EQ(error_of([&] { Tensor::from_host(counting(3), {2}, device); }),
            "from_host: 3 values for a tensor of shape [2]");
  EXPECT_NE(error_of([&] { Tensor::empty({2, -1}, device); }), "");
  EXPECT_NE(error_of([&] { Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}, device); }), "");
  EXPECT_NE(error_of([] { Tensor().shape(); }), "");
}

}  // namespace
}  // namespace lockstep
