// bfloat16's conversions, on the device and on the host: all 65,536 values, what lies half way between two
// of them, and random floats against rounding done in double.
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/launch.cuh"
#include "tests/kernels/device_buffer.h"

namespace {

using lockstep::kernels::launch_elements;
using lockstep::test::DeviceBuffer;

static_assert(sizeof(__nv_bfloat16) == 2 && alignof(__nv_bfloat16) == 2);
static_assert(std::is_trivially_copyable_v<__nv_bfloat16>);

constexpr uint32_t kInfinity = 0x7f80;
constexpr uint32_t kSign = 0x8000;
constexpr uint16_t kNan = 0x7fff;

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

bool is_nan(uint32_t bfloat16) {
  return (bfloat16 & ~kSign) > kInfinity;
}

std::vector<__nv_bfloat16> all_values() {
  std::vector<__nv_bfloat16> values;
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    values.push_back(__ushort_as_bfloat16(static_cast<unsigned short>(bits)));
  return values;
}

struct Round {
  const float* in;
  __nv_bfloat16* out;
  __device__ void operator()(int64_t i) const { out[i] = __float2bfloat16_rn(in[i]); }
};

struct Widen {
  const __nv_bfloat16* in;
  float* out;
  __device__ void operator()(int64_t i) const { out[i] = __bfloat162float(in[i]); }
};

// The bits of each value, rounded by the device; and that the host, under both names, rounds alike.
std::vector<uint16_t> rounded(const std::vector<float>& values) {
  const DeviceBuffer<float> in(values);
  const DeviceBuffer<__nv_bfloat16> out(values.size(), __ushort_as_bfloat16(0));
  launch_elements(nullptr, static_cast<int64_t>(values.size()), Round{in.data(), out.data()});
  std::vector<uint16_t> bits;
  for (const __nv_bfloat16 value : out.to_host()) bits.push_back(__bfloat16_as_ushort(value));
  for (size_t i = 0; i < values.size(); ++i)
    if (__bfloat16_as_ushort(__float2bfloat16_rn(values[i])) != bits[i] ||
        __bfloat16_as_ushort(__float2bfloat16(values[i])) != bits[i]) {
      ADD_FAILURE() << "device and host round " << values[i] << " differently";
      break;
    }
  return bits;
}

std::vector<float> widened(const std::vector<__nv_bfloat16>& values) {
  const DeviceBuffer<__nv_bfloat16> in(values);
  const DeviceBuffer<float> out(values.size(), 0.0f);
  launch_elements(nullptr, static_cast<int64_t>(values.size()), Widen{in.data(), out.data()});
  return out.to_host();
}

// The nearer of the two neighbours in size, the even one where both are as near. In double: exact, and what
// comes after the largest finite value is 2^128, not infinity.
uint16_t nearest(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & kSign;
  const uint32_t below = bits >> 16 & ~kSign;
  if (below == kInfinity) return static_cast<uint16_t>(sign | kInfinity);
  const auto size = [](uint32_t v) {
    return v == kInfinity ? std::ldexp(1.0, 128) : static_cast<double>(float_of(v << 16));
  };
  const double down = std::fabs(static_cast<double>(value)) - size(below);
  const double up = size(below + 1) - std::fabs(static_cast<double>(value));
  const bool take_upper = up < down || (up == down && below % 2 == 1);
  return static_cast<uint16_t>(sign | (take_upper ? below + 1 : below));
}

TEST(KernelBfloat16, EveryValueIsTheUpperHalfOfItsFloat) {
  const std::vector<float> floats = widened(all_values());
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float on_host = __bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(bits)));
    if (is_nan(bits)) {
      ASSERT_TRUE(std::isnan(floats[bits]) && std::isnan(on_host)) << std::hex << bits;
      continue;
    }
    const float wanted = float_of(bits << 16);
    ASSERT_EQ(std::memcmp(&floats[bits], &wanted, sizeof wanted), 0) << std::hex << bits;
    ASSERT_EQ(std::memcmp(&on_host, &wanted, sizeof wanted), 0) << std::hex << bits;
  }
}

TEST(KernelBfloat16, EveryValueSurvivesTheWayThroughFloat) {
  const std::vector<uint16_t> back = rounded(widened(all_values()));
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    ASSERT_EQ(back[bits], is_nan(bits) ? kNan : bits) << std::hex << bits;
}

// Around every point half way between two values, denormals included, and between the largest and infinity.
TEST(KernelBfloat16, HalfWayGoesToTheEvenNeighbour) {
  std::vector<float> values;
  std::vector<uint32_t> wanted;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & ~kSign) >= kInfinity) continue;
    const uint32_t half_way = bits << 16 | 0x8000;
    values.insert(values.end(), {float_of(half_way - 1), float_of(half_way), float_of(half_way + 1)});
    wanted.insert(wanted.end(), {bits, bits + bits % 2, bits + 1});
  }
  const std::vector<uint16_t> found = rounded(values);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(found[i], wanted[i]) << values[i];
}

TEST(KernelBfloat16, InfinityStaysAndOverflowBecomesIt) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(rounded({infinity, -infinity, largest, -largest}),
            (std::vector<uint16_t>{0x7f80, 0xff80, 0x7f80, 0xff80}));
}

TEST(KernelBfloat16, ZerosKeepTheirSignAndTheSmallestDenormalBecomesZero) {
  const float smallest = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(rounded({0.0f, -0.0f, smallest, -smallest}), (std::vector<uint16_t>{0, 0x8000, 0, 0x8000}));
}

// Also where only the half that is cut off says so, and where rounding would carry into the sign.
TEST(KernelBfloat16, NanStaysNan) {
  std::vector<float> values;
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffc00000u, 0x7f80ffffu, 0x7fffffffu,
                              0xffffffffu, 0x7fff8000u})
    values.push_back(float_of(bits));
  EXPECT_EQ(rounded(values), std::vector<uint16_t>(values.size(), kNan));
}

TEST(KernelBfloat16, RoundsRandomFloatsToTheNearest) {
  constexpr unsigned kSeed = 16;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 generator(kSeed);
  std::vector<float> values;
  while (values.size() < 200'000) {
    const float value = float_of(static_cast<uint32_t>(generator()));
    if (!std::isnan(value)) values.push_back(value);
  }
  const std::vector<uint16_t> found = rounded(values);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(found[i], nearest(values[i])) << values[i];
}

// 1 + 2^-8 is half way between 1 and the next value: a result that were not rounded would be seen.
struct Arithmetic {
  float* out;
  __device__ void operator()(int64_t) const {
    const __nv_bfloat16 one = 1.0F, third = 1.0F / 3;
    const __nv_bfloat16 small = 0x1p-8F;
    out[0] = one + small;
    out[1] = one - small;
    out[2] = third * third;
    out[3] = one / third;
    __nv_bfloat16 sum = one;
    sum += small;
    out[4] = static_cast<float>(sum);
  }
};

TEST(KernelBfloat16, ArithmeticRoundsEachResult) {
  const DeviceBuffer<float> result(std::vector<float>(5, 0.0F), 1);
  launch_elements(nullptr, 1, Arithmetic{result.data()});
  const auto rounded_once = [](double exact) {
    return float_of(uint32_t{nearest(static_cast<float>(exact))} << 16);
  };
  const double third = rounded_once(1.0 / 3);
  EXPECT_EQ(result.to_host(),
            (std::vector<float>{1, 1 - 0x1p-8F, rounded_once(third * third), rounded_once(1 / third), 1}));
}

}  // namespace
