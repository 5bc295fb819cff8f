// Philox, unbiased bounded numbers above it, and Fisher-Yates above those.
#include "nn/data/shuffle.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/check.h"

namespace lockstep::data {
namespace {

// A stream of 32-bit numbers: the four words of block 0, then of block 1, and so on.
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, uint64_t epoch) : key_(split(seed)), epoch_(split(epoch)) {}

  uint32_t next() {
    if (used_ == 4) {
      const auto block = split(block_++);
      words_ = philox({block[0], block[1], epoch_[0], epoch_[1]}, key_);
      used_ = 0;
    }
    return words_[used_++];
  }

  // Uniform in [0, bound), without bias: the high half of next() * bound, where the few products whose low
  // half would make some results likelier than others are thrown away (Lemire, 2019). bound > 0.
  uint32_t below(uint32_t bound) {
    const uint32_t surplus = -bound % bound;  // 2^32 mod bound
    uint64_t product = uint64_t{next()} * bound;
    while (static_cast<uint32_t>(product) < surplus) product = uint64_t{next()} * bound;
    return static_cast<uint32_t>(product >> 32);
  }

 private:
  static std::array<uint32_t, 2> split(uint64_t value) {
    return {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)};
  }

  std::array<uint32_t, 2> key_, epoch_;
  uint64_t block_ = 0;
  std::array<uint32_t, 4> words_{};
  int used_ = 4;
};

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * counter[0];
    const uint64_t b = uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9e3779b9, key[1] + 0xbb67ae85};
  }
  return counter;
}

std::vector<int32_t> permutation(int64_t n, uint64_t seed, uint64_t epoch) {
  if (n < 0 || n > std::numeric_limits<int32_t>::max())
    throw Error(fmt::format("permutation: asked for {} rows, expected 0 to {}", n,
                            std::numeric_limits<int32_t>::max()));
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  PhiloxStream random(seed, epoch);
  for (size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[random.below(static_cast<uint32_t>(left))]);
  return order;
}

std::vector<Batch> batches(int64_t n, int64_t batch_size) {
  if (batch_size < 1 || batch_size > n)
    throw Error(fmt::format("batches: batch size {}, expected 1 to {}, the number of rows", batch_size, n));
  std::vector<Batch> result;
  for (int64_t begin = 0; begin < n; begin += batch_size)
    result.push_back({begin, std::min(begin + batch_size, n)});
  return result;
}

}  // namespace lockstep::data
