#include "apps/allreduce/sizes.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "kernels/check.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr char kUnits[] = "KMG";

}  // namespace

int64_t parse_size(const std::string& option, const std::string& text) {
  int64_t size = 0;
  const char* const end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, size);
  bool good = error == std::errc() && size >= 0 && size <= kMostBytes;
  if (good && rest != end) {
    const std::string_view units = kUnits;
    const size_t unit = units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*rest))));
    good = unit != std::string_view::npos && rest + 1 == end && size <= kMostBytes >> (10 * (unit + 1));
    if (good) size <<= 10 * (unit + 1);
  }
  if (!good) throw Error(fmt::format("{} is '{}': use bytes up to 1024G, as 4096, 4K or 16M", option, text));
  return size;
}

std::string size_text(int64_t bytes) {
  std::string unit;
  for (const char next : std::string_view(kUnits)) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    unit = next;
  }
  return std::to_string(bytes) + unit;
}

std::vector<int64_t> sizes_between(const std::string& begin, const std::string& end, int factor) {
  const int64_t first = parse_size("--begin", begin), last = parse_size("--end", end);
  if (first < 4) throw Error(fmt::format("--begin is {}: use 4 bytes or more", begin));
  if (last < first)
    throw Error(fmt::format("--end is {}, which is less than --begin, {}: use as much or more", end, begin));
  std::vector<int64_t> sizes;
  for (int64_t size = first; size <= last; size *= factor) sizes.push_back(size);
  return sizes;
}

}  // namespace lockstep::apps
