// Device math that only CUDA has, against its definition.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/launch.cuh"
#include "tests/kernels/device_buffer.h"

namespace {

using lockstep::kernels::launch;
using lockstep::test::DeviceBuffer;

__global__ void integer_functions(int* out) {
  int i = 0;
  out[i++] = __popc(0xf0f0f0f1u);
  out[i++] = __popcll(0xf0f0f0f1ull << 8);
  out[i++] = __clz(1);
  out[i++] = __clz(0);
  out[i++] = __clzll(1);
  out[i++] = __ffs(0);
  out[i++] = __ffs(0x50);
  out[i++] = __ffsll(1LL << 40);
  out[i++] = static_cast<int>(__brev(0x1u) == 0x80000000u);
  out[i++] = static_cast<int>(__umulhi(0x80000000u, 6u));
  out[i++] = __mulhi(-2, 0x40000000);
  out[i++] = __mul24(-3, 5);
  out[i++] = __mul24(0x1000002, 3);
  out[i++] = static_cast<int>(__umul24(0xff000002u, 3u));
  out[i++] = __float_as_int(1.0f);
  out[i++] = static_cast<int>(__int_as_float(0x40000000));
  out[i++] = __float2int_rn(2.5f);
  out[i++] = __float2int_rz(-2.7f);
  out[i++] = min(3, -2);
  out[i++] = static_cast<int>(max(3u, 7u));
  out[i++] = static_cast<int>(min(2.5f, 4.0f) * 2);
}

TEST(KernelMath, IntegerAndBitFunctionsFollowTheirDefinition) {
  const std::vector<int> wanted = {17,  17, 31, 32,         63, 0, 5,  41, 1, 3, -1,
                                   -15, 6,  6,  0x3f800000, 2,  2, -2, -2, 7, 5};
  const DeviceBuffer<int> out(wanted.size(), -99);
  launch(integer_functions, 1, 1, 0, nullptr, out.data());
  EXPECT_EQ(out.to_host(), wanted);
}

__global__ void float_functions(float x, float* out) {
  int i = 0;
  out[i++] = __expf(x);
  out[i++] = __logf(x);
  out[i++] = rsqrtf(x);
  out[i++] = __fdividef(1.0f, x);
  out[i++] = __sinf(x);
  out[i++] = __cosf(x);
  out[i++] = __powf(x, 1.5f);
  out[i++] = fmaf(x, x, 1.0f);
  out[i++] = fmaxf(NAN, x);
  out[i++] = __saturatef(x);
  out[i++] = __ldg(out);
}

TEST(KernelMath, FloatFunctionsAreCloseToTheExactValue) {
  const double x = 1.75;
  const std::vector<double> wanted = {std::exp(x), std::log(x), 1 / std::sqrt(x), 1 / x,
                                      std::sin(x), std::cos(x), std::pow(x, 1.5), x * x + 1,
                                      x,           1.0,         std::exp(x)};
  const DeviceBuffer<float> out(wanted.size(), 0.0f);
  launch(float_functions, 1, 1, 0, nullptr, 1.75f, out.data());
  const std::vector<float> found = out.to_host();
  // A GPU's fast intrinsics are good to some 2^-21 near 1; a wrong function is off by far more.
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(found[i], wanted[i], 2e-6 * (1 + std::abs(wanted[i]))) << i;
}

}  // namespace
