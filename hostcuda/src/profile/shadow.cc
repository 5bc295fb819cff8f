#include "hostcuda/src/profile/shadow.h"

#include <algorithm>
#include <bit>

namespace hostcuda::profile {

namespace {

constexpr int kMostThreads = 1024;
constexpr int kWarp = 32;

}  // namespace

Shadow::Shadow() : seen_(kMostThreads), fenced_(kMostThreads) {}

void Shadow::begin_launch() {
  pages_.clear();
  recent_ = {};
  used_pages_ = 0;
  complete_ = true;
  block_ = 0;
  published_.clear();
}

void Shadow::begin_block() {
  ++block_;
  block_time_ = barrier_time_ = time_;
  std::fill(fenced_.begin(), fenced_.end(), 0);
  known_.clear();
}

Shadow::Word* Shadow::word(uint64_t address) {
  const uint64_t number = address / kWordBytes / kPageWords;
  auto& [recent_number, recent_page] = recent_[number % recent_.size()];
  if (recent_page == nullptr || recent_number != number) {
    Page*& page = pages_[number];
    if (page == nullptr) {
      if (used_pages_ == kMostPages) {
        complete_ = false;
        pages_.erase(number);
        return nullptr;
      }
      if (used_pages_ == all_pages_.size()) all_pages_.push_back(std::make_unique<Page>());
      page = all_pages_[used_pages_++].get();
      *page = {};
    }
    recent_number = number;
    recent_page = page;
  }
  return &recent_page->words[address / kWordBytes % kPageWords];
}

// Whether nothing orders `before` and what `thread` does now, and how far apart they are.
Order Shadow::unordered(const Touch& before, Space space, int thread) const {
  const auto other = static_cast<int>(before.thread);
  if (before.block != block_) {
    if (space == Space::shared) return Order::none;
    const auto known = known_.find(static_cast<unsigned>(before.block));
    return known != known_.end() && before.time < known->second ? Order::none : Order::other_block;
  }
  if (other == thread || before.time <= barrier_time_) return Order::none;
  if (!known_.empty())
    if (const auto known = known_.find(block_); known != known_.end() && before.time < known->second)
      return Order::none;
  if (other / kWarp != thread / kWarp) return Order::same_block;
  return before.time <= seen_[thread][other % kWarp] ? Order::none : Order::same_warp;
}

void Shadow::note_read(Word& word, const Touch& touch) {
  auto& [last, same_warp, other_warp] = word.reads;
  const auto warp = [](const Touch& t) { return std::pair(t.block, t.thread / kWarp); };
  if (last.bytes != 0 && (last.thread != touch.thread || last.block != touch.block)) {
    if (warp(last) == warp(touch))
      same_warp = last;
    else
      other_warp = last;
  }
  last = touch;
}

void Shadow::warp_met(int warp, unsigned lanes, unsigned ended) {
  std::array<uint64_t, kWarp> met{};
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const auto& seen = seen_[warp * kWarp + std::countr_zero(rest)];
    for (int lane = 0; lane < kWarp; ++lane) met[lane] = std::max(met[lane], seen[lane]);
  }
  for (unsigned rest = lanes | ended; rest != 0; rest &= rest - 1) met[std::countr_zero(rest)] = time_;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) seen_[warp * kWarp + std::countr_zero(rest)] = met;
}

// What the thread had done, and seen, before its last fence is published with the address; what others have
// published there is known from now on, to the whole block: its threads that learn of it otherwise than over
// a barrier are not told apart.
void Shadow::atomic(int thread, uint64_t address) {
  const bool fenced = fenced_[thread] > block_time_;
  if (!fenced && published_.empty()) return;
  auto& at = published_[address];
  for (const auto& [block, time] : at) known_[block] = std::max(known_[block], time);
  if (!fenced) return;
  at[block_] = std::max(at[block_], fenced_[thread]);
  for (const auto& [block, time] : known_) at[block] = std::max(at[block], time);
}

}  // namespace hostcuda::profile
