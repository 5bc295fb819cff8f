#include "hostcuda/src/profile/traffic.h"

#include <algorithm>

namespace hostcuda::profile {

namespace {

constexpr double kSectorBytes = 32;

}  // namespace

void Traffic::begin_launch() {
  slots_.assign(size_t{1} << 12, Slot{});
  used_ = 0;
  block_ = 0;
  for (auto& spans : spans_) spans.clear();
}

Traffic::Slot& Traffic::find(uint64_t key) {
  const uint64_t mask = slots_.size() - 1;
  uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 20 & mask;
  while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & mask;
  return slots_[at];
}

void Traffic::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.key != 0) find(slot.key) = slot;
}

void Traffic::touch(uint64_t sector, unsigned instruction, bool writes) {
  std::vector<Span>& spans = spans_[writes ? 1 : 0];
  if (spans.size() <= instruction) spans.resize(instruction + 1);
  Span& span = spans[instruction];
  span.first = std::min(span.first, sector);
  span.last = std::max(span.last, sector);
  const uint64_t key = sector * 2 + (writes ? 1 : 0);
  Slot* slot = &find(key);
  if (slot->key == 0) {
    ++span.in_launch;
    ++span.in_blocks;
    if (used_ == kMostSectors) return;  // from here on each counts as new
    if (++used_ * 2 > slots_.size()) {
      grow();
      slot = &find(key);
    }
    *slot = {key, block_};
  } else if (slot->block != block_) {
    ++span.in_blocks;
    slot->block = block_;
  }
}

// Instructions that run over the same memory count together. Sectors that no two blocks share come with every
// block; where blocks share some, there are at most those between the first and the last, which the first and
// the last block of the grid tell.
TrafficEstimate Traffic::estimate(uint64_t blocks) const {
  TrafficEstimate result;
  const double recorded = block_, all = static_cast<double>(blocks);
  for (const bool writes : {false, true}) {
    std::vector<Span> spans = spans_[writes ? 1 : 0];
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.first < b.first; });
    double once = 0, by_blocks = 0;
    for (size_t i = 0; i < spans.size();) {
      if (spans[i].first > spans[i].last) break;  // the instruction does not go this way; sorted to the end
      Span area = spans[i++];
      for (; i < spans.size() && spans[i].first <= area.last; ++i) {
        area.last = std::max(area.last, spans[i].last);
        area.in_launch += spans[i].in_launch;
        area.in_blocks += spans[i].in_blocks;
      }
      const double in_launch = static_cast<double>(area.in_launch);
      const double in_blocks = static_cast<double>(area.in_blocks);
      const bool all_share = recorded > 1 && in_launch * recorded <= in_blocks;
      const double scaled = in_blocks * all / recorded;
      by_blocks += scaled;
      if (recorded == all || all_share)
        once += in_launch;
      else
        once += std::max(in_launch, std::min(scaled, static_cast<double>(area.last - area.first + 1)));
    }
    (writes ? result.written_once : result.read_once) = kSectorBytes * once;
    (writes ? result.written_by_blocks : result.read_by_blocks) = kSectorBytes * by_blocks;
  }
  return result;
}

}  // namespace hostcuda::profile
