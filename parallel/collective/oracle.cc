#include "parallel/collective/oracle.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "kernels/check.h"
#include "kernels/float_types.h"
#include "parallel/collective/serial.h"

namespace lockstep::collective {
namespace {

// A bfloat16 as the serial sums want it.
struct Rounded {
  __nv_bfloat16 value;
  Rounded() = default;
  explicit Rounded(float wide) : value(kernels::from_float<__nv_bfloat16>(wide)) {}
  explicit operator float() const { return kernels::to_float(value); }
};

std::vector<float> on_host(const Tensor& tensor) {
  if (tensor.dtype() == DType::float32) return tensor.to_host<float>();
  std::vector<float> values;
  for (const __nv_bfloat16 value : tensor.to_host<__nv_bfloat16>())
    values.push_back(kernels::to_float(value));
  return values;
}

template <typename T>
std::vector<std::vector<float>> expectation(const Plan& plan, const std::vector<Tensor>& data) {
  std::vector<std::vector<T>> buffers;
  for (const Tensor& tensor : data) {
    buffers.emplace_back();
    for (const float value : on_host(tensor)) buffers.back().push_back(T(value));
  }
  carry_out(plan, buffers);
  std::vector<std::vector<float>> expected;
  for (const std::vector<T>& buffer : buffers) {
    expected.emplace_back();
    for (const T& value : buffer) expected.back().push_back(static_cast<float>(value));
  }
  return expected;
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

}  // namespace

Oracle::Oracle(const Plan& plan, const std::vector<Tensor>& data) {
  for_float_type("the check of an allreduce", data.front().dtype(), [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, float>)
      expected_ = expectation<float>(plan, data);
    else
      expected_ = expectation<Rounded>(plan, data);
  });
}

void Oracle::compare(const std::vector<Tensor>& data) const {
  for (size_t rank = 0; rank < data.size(); ++rank) {
    const std::vector<float> found = on_host(data[rank]);
    for (size_t i = 0; i < found.size(); ++i)
      if (!same(found[i], expected_[rank][i]))
        throw Error(
            fmt::format("allreduce: rank {} has {} in element {}, the plan carried out one transfer after "
                        "the other gives {}",
                        rank, found[i], i, expected_[rank][i]));
  }
}

}  // namespace lockstep::collective
