#include "hostcuda/src/profile/requests.h"

#include <algorithm>
#include <array>

namespace hostcuda::profile {

namespace {

constexpr unsigned kSectorBytes = 32;
constexpr unsigned kBanks = 32;
constexpr unsigned kBankBytes = 4;
constexpr int kWarp = 32;

int count_distinct(uint64_t* first, uint64_t* last) {
  if (!std::is_sorted(first, last)) std::sort(first, last);
  return static_cast<int>(std::unique(first, last) - first);
}

}  // namespace

Request global_request(std::span<const uint64_t> addresses, unsigned bytes) {
  // A lane's access lies in two sectors at most, unless it is longer than any load of a GPU.
  std::array<uint64_t, size_t{2} * kWarp> sectors;
  size_t count = 0;
  int beyond = 0;
  for (const uint64_t address : addresses) {
    const uint64_t first = address / kSectorBytes, last = (address + bytes - 1) / kSectorBytes;
    sectors[count++] = first;
    if (last != first) sectors[count++] = last;
    if (last > first + 1) beyond += static_cast<int>(last - first - 1);
  }
  return {count_distinct(sectors.data(), sectors.data() + count) + beyond, 0, 0};
}

Request shared_request(std::span<const uint64_t> addresses, std::span<const uint8_t> lanes, unsigned bytes) {
  Request request;
  const unsigned words_each = std::clamp(bytes / kBankBytes, 1u, 4u);
  const unsigned lanes_a_part = kWarp / (words_each == 3 ? 4 : words_each);
  for (unsigned part = 0; part < kWarp / lanes_a_part; ++part) {
    std::array<uint64_t, size_t{4} * kWarp> words;
    size_t count = 0;
    for (size_t i = 0; i < addresses.size(); ++i) {
      if (lanes[i] / lanes_a_part != part) continue;
      for (unsigned word = 0; word < words_each; ++word) words[count++] = addresses[i] / kBankBytes + word;
    }
    if (count == 0) continue;
    const int distinct = count_distinct(words.data(), words.data() + count);
    std::array<int, kBanks> in_bank{};
    int most = 0;
    for (int i = 0; i < distinct; ++i) most = std::max(most, ++in_bank[words[i] % kBanks]);
    request.passes += most;
    ++request.parts;
  }
  return request;
}

}  // namespace hostcuda::profile
