// Values of other widths become float32 without a bit lost, or with an error.
#include "nn/io/to_float32.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "tests/error_of.h"

namespace lockstep::data {
namespace {

template <typename T>
HostTensor tensor(const std::string& name, StoredType dtype, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {name, dtype, {static_cast<int64_t>(values.size())}, {bytes.begin(), bytes.end()}};
}

std::vector<float> floats(const HostTensor& tensor) {
  EXPECT_EQ(tensor.dtype, StoredType::f32);
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST(ToFloat32, TakesEveryHalfExactly) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<HostTensor> tensors{tensor("x", StoredType::f16, all)};
  EXPECT_EQ(convert_to_float32(tensors, "f"), (std::map<StoredType, int>{{StoredType::f16, 1}}));
  const std::vector<float> values = floats(tensors[0]);
  ASSERT_EQ(values.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const int exponent = static_cast<int>(i >> 10 & 31), fraction = static_cast<int>(i & 1023);
    const double sign = i >> 15 != 0 ? -1 : 1;
    EXPECT_EQ(std::signbit(values[i]), i >> 15 != 0) << i;
    if (exponent == 31 && fraction != 0)
      EXPECT_TRUE(std::isnan(values[i])) << i;
    else if (exponent == 31)
      EXPECT_EQ(values[i], sign * std::numeric_limits<double>::infinity()) << i;
    else if (exponent == 0)
      EXPECT_EQ(values[i], sign * std::ldexp(fraction, -24)) << i;
    else
      EXPECT_EQ(values[i], sign * std::ldexp(1024 + fraction, exponent - 25)) << i;
  }
}

TEST(ToFloat32, TakesTheUpperHalfOfAFloatAsItIs) {
  const std::vector<uint16_t> stored{0x3f80, 0xc020, 0x0001, 0x8000, 0x7f80, 0xff80, 0x7fc1};
  std::vector<HostTensor> tensors{tensor("x", StoredType::bf16, stored)};
  convert_to_float32(tensors, "f");
  const std::vector<float> values = floats(tensors[0]);
  ASSERT_EQ(values.size(), stored.size());
  for (size_t i = 0; i < stored.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(values[i]), uint32_t{stored[i]} << 16) << i;
}

TEST(ToFloat32, RoundsADoubleToTheNearestAndLeavesIntegersAndFloats) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<HostTensor> tensors{
      tensor<double>("x", StoredType::f64,
                     {1.0, 1 + 0x1p-24, 1 + 0x1p-24 + 0x1p-40, 1 + 0x3p-24, -0.0, 0x1p-149, infinity}),
      tensor<int64_t>("n", StoredType::i64, {7}), tensor<float>("y", StoredType::f32, {0.5f}),
      tensor<uint16_t>("z", StoredType::f16, {0x3c00})};
  const std::vector<HostTensor> before = tensors;
  EXPECT_EQ(convert_to_float32(tensors, "f"),
            (std::map<StoredType, int>{{StoredType::f16, 1}, {StoredType::f64, 1}}));
  EXPECT_EQ(floats(tensors[0]), (std::vector<float>{1.0f, 1.0f, 1 + 0x1p-23f, 1 + 0x1p-22f, -0.0f, 0x1p-149f,
                                                    std::numeric_limits<float>::infinity()}));
  EXPECT_TRUE(tensors[1] == before[1]);
  EXPECT_TRUE(tensors[2] == before[2]);
  EXPECT_EQ(floats(tensors[3]), std::vector<float>{1.0f});
}

TEST(ToFloat32, RefusesADoubleBeyondFloat32AndChangesNothing) {
  std::vector<HostTensor> tensors{tensor<uint16_t>("a", StoredType::f16, {0x3c00}),
                                  tensor<double>("b\n", StoredType::f64, {1, -1e39})};
  const std::vector<HostTensor> before = tensors;
  EXPECT_EQ(error_of([&] { convert_to_float32(tensors, "f"); }),
            "f: tensor \"b\\n\": found -1e+39, expected values that float32 can hold, up to 3.4e38");
  EXPECT_TRUE(tensors == before);
}

}  // namespace
}  // namespace lockstep::data
