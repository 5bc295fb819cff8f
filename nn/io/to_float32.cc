#include "nn/io/to_float32.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/printable.h"
#include "kernels/check.h"

namespace lockstep::data {
namespace {

// IEEE 754 binary16: a sign, 5 bits of exponent, 10 of fraction. A NaN keeps its sign and its fraction.
float from_half(uint16_t half) {
  constexpr float kSmallest = 0x1p-24f;  // the unit of subnormals
  const uint32_t sign = uint32_t{half} >> 15 << 31, exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 0) return (sign != 0 ? -kSmallest : kSmallest) * static_cast<float>(fraction);
  const uint32_t wider = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wider << 23 | fraction << 13);
}

float from_bfloat16(uint16_t value) {
  return std::bit_cast<float>(uint32_t{value} << 16);
}

template <typename Stored, typename Convert>
std::vector<std::byte> converted(const HostTensor& tensor, const Convert& convert) {
  const size_t count = tensor.bytes.size() / sizeof(Stored);
  std::vector<std::byte> result(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, tensor.bytes.data() + i * sizeof stored, sizeof stored);
    const float value = convert(stored);
    std::memcpy(result.data() + i * sizeof value, &value, sizeof value);
  }
  return result;
}

}  // namespace

std::map<StoredType, int> convert_to_float32(std::vector<HostTensor>& tensors, const std::string& file) {
  std::map<StoredType, int> counts;
  std::vector<std::vector<std::byte>> bytes(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const HostTensor& tensor = tensors[i];
    const auto from_double = [&](double value) {
      const auto rounded = static_cast<float>(value);
      if (std::isinf(rounded) && !std::isinf(value))
        throw Error(
            fmt::format("{}: tensor {}: found {}, expected values that float32 can hold, up to 3.4e38",
                        printable(file), in_quotes(tensor.name), value));
      return rounded;
    };
    if (tensor.dtype == StoredType::f16)
      bytes[i] = converted<uint16_t>(tensor, from_half);
    else if (tensor.dtype == StoredType::bf16)
      bytes[i] = converted<uint16_t>(tensor, from_bfloat16);
    else if (tensor.dtype == StoredType::f64)
      bytes[i] = converted<double>(tensor, from_double);
    else
      continue;
    ++counts[tensor.dtype];
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!counts.contains(tensors[i].dtype)) continue;
    tensors[i].dtype = StoredType::f32;
    tensors[i].bytes = std::move(bytes[i]);
  }
  return counts;
}

}  // namespace lockstep::data
