// Random words, unbiased bounded numbers above it, and Fisher-Yates above those.
#include "nn/data/shuffle.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/check.h"
#include "kernels/philox.cuh"

namespace lockstep::data {
namespace {

// Keeps the numbers apart from those that fill parameters from the same seed (sequences 0, 1, ...).
constexpr uint64_t kShuffleSequence = 0x73687566666c6500;  // "shuffle"

// A stream of 32-bit numbers: the four words of block 0, then of block 1, and so on.
class EpochRandom {
 public:
  EpochRandom(uint64_t seed, uint64_t epoch) : seed_(seed), sequence_(epoch ^ kShuffleSequence) {}

  uint32_t next() {
    if (used_ == 4) {
      block_ = kernels::philox(seed_, sequence_, index_++);
      used_ = 0;
    }
    return block_.word[used_++];
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
  uint64_t seed_, sequence_, index_ = 0;
  kernels::PhiloxBlock block_{};
  int used_ = 4;
};

}  // namespace

std::vector<int32_t> permutation(int64_t n, uint64_t seed, uint64_t epoch) {
  if (n < 0 || n > std::numeric_limits<int32_t>::max())
    throw Error(fmt::format("permutation: asked for {} rows, expected 0 to {}", n,
                            std::numeric_limits<int32_t>::max()));
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  EpochRandom random(seed, epoch);
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
