#include "core/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace lockstep {
namespace {

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;  // 0: no UTF-8
};

// The code point at the beginning of `text`, which is not empty.
CodePoint first_code_point(std::string_view text) {
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};  // of so many bytes
  const auto byte = [&text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const size_t bytes = byte(0) < 0x80 ? 1 : byte(0) < 0xc0 ? 0 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  if (bytes == 0 || bytes > text.size() || byte(0) >= 0xf8) return {};
  uint32_t value = bytes == 1 ? byte(0) : byte(0) & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fU);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kSmallest[bytes] || value > 0x10ffff || surrogate) return {};
  return {value, bytes};
}

// Controls, ends of lines and paragraphs, and what turns the direction of writing.
bool is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

std::string escape(uint32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  return c < 0x80 ? fmt::format("\\x{:02x}", c) : fmt::format("\\u{{{:x}}}", c);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    const size_t bytes = std::max<size_t>(c.bytes, 1);
    if (c.bytes == 0)
      result += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
    else if (is_control(c.value))
      result += escape(c.value);
    else
      result += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return result;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kMost = 80;
  return fmt::format("\"{}\"{}", printable(text.substr(0, kMost)), text.size() <= kMost ? "" : "...");
}

}  // namespace lockstep
