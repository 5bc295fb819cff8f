// The arithmetic of collectives: every type, operation and number of buffers, at odd sizes and alignments,
// against the same expression on the host, bit for bit, in both forms of a kernel.
#include "kernels/combine.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <deque>
#include <random>
#include <string>

#include "kernels/float_types.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

template <typename T>
class CombineTest : public testing::Test {};
using Types = testing::Types<float, __nv_bfloat16, __half, int32_t>;
TYPED_TEST_SUITE(CombineTest, Types);

// What a T is computed in.
float wide(float value) {
  return value;
}
float wide(__nv_bfloat16 value) {
  return to_float(value);
}
float wide(__half value) {
  return to_float(value);
}
int32_t wide(int32_t value) {
  return value;
}
template <typename T, typename Wide>
T narrow(Wide value) {
  if constexpr (std::is_same_v<T, int32_t>)
    return value;
  else
    return from_float<T>(value);
}

template <typename Wide>
Wide one(Combine how, Wide a, Wide b) {
  if (how == Combine::sum) return a + b;
  if (a != a || b != b) return a != a ? a : b;
  return how == Combine::max ? std::max(a, b) : std::min(a, b);
}

template <typename T>
std::vector<T> values(size_t n, uint32_t salt) {
  std::mt19937 random(kSeed + salt);
  std::vector<T> result;
  for (size_t i = 0; i < n; ++i) {
    const int integer = static_cast<int>(random() % 20001) - 10000;
    if constexpr (std::is_same_v<T, int32_t>)
      result.push_back(integer);
    else
      result.push_back(from_float<T>(i % 11 == 7 ? kNaN : static_cast<float>(integer) * 0x1p-9f));
  }
  return result;
}

template <typename T>
void expect_bits(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size() && !testing::Test::HasFailure(); ++i) {
    if (wide(want[i]) != wide(want[i])) {
      EXPECT_NE(wide(got[i]), wide(got[i])) << what << ", element " << i;
      continue;
    }
    EXPECT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0)
        << what << ", element " << i << ": " << wide(got[i]) << " for " << wide(want[i]);
  }
}

constexpr Combine kHows[] = {Combine::sum, Combine::max, Combine::min};

TYPED_TEST(CombineTest, IntoTheFirst) {
  using T = TypeParam;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const Combine how : kHows)
    for (const size_t n : {0, 1, 7, 8, 9, 31, 33, 1000})
      for (const size_t offset : {0, 1, 3}) {
        const std::vector<T> before = values<T>(n, 1), source = values<T>(n, 2);
        std::vector<T> want = before;
        for (size_t i = 0; i < n; ++i) want[i] = narrow<T>(one(how, wide(before[i]), wide(source[i])));
        in_both_forms([&] {
          const DeviceBuffer<T> to(before, offset), from(source, 3 - offset);
          combine_into(how, to.data(), static_cast<const T*>(from.data()), static_cast<int64_t>(n), nullptr);
          expect_bits(to.to_host(), want, "n " + std::to_string(n) + " offset " + std::to_string(offset));
          expect_bits(from.to_host(), source, "the source");
        });
      }
}

// Half types are rounded once, at the end.
TYPED_TEST(CombineTest, AllIntoAll) {
  using T = TypeParam;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const Combine how : kHows)
    for (const int buffers : {2, 3, 4, 5, 8, 9, 64})
      for (const size_t n : {1, 9, 333}) {
        const float factor = std::is_same_v<T, int32_t> || how != Combine::sum ? 1.0f : 0.375f;
        std::vector<std::vector<T>> inputs;
        for (int b = 0; b < buffers; ++b) inputs.push_back(values<T>(n, static_cast<uint32_t>(b)));
        std::vector<T> want;
        for (size_t i = 0; i < n; ++i) {
          auto value = wide(inputs[0][i]);
          for (int b = 1; b < buffers; ++b) value = one(how, value, wide(inputs[b][i]));
          if constexpr (!std::is_same_v<T, int32_t>) value *= factor;
          want.push_back(narrow<T>(value));
        }
        in_both_forms([&] {
          std::deque<DeviceBuffer<T>> device;
          std::vector<T*> pointers;
          for (int b = 0; b < buffers; ++b) {
            device.emplace_back(inputs[b], buffers == 3 ? static_cast<size_t>(b) : size_t{1});
            pointers.push_back(device.back().data());
          }
          combine_all(how, pointers, factor, static_cast<int64_t>(n), nullptr);
          for (const DeviceBuffer<T>& each : device)
            expect_bits(each.to_host(), want, std::to_string(buffers) + " buffers, n " + std::to_string(n));
        });
      }
}

TEST(Combine, ScalesEveryElement) {
  in_both_forms([&] {
    const DeviceBuffer<float> x(std::vector<float>{1, -2, 3}, 1);
    scale(x.data(), 0.25f, 3, nullptr);
    EXPECT_EQ(x.to_host(), (std::vector<float>{0.25f, -0.5f, 0.75f}));
  });
}

}  // namespace
}  // namespace lockstep::kernels
