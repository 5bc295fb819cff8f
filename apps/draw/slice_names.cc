#include "apps/draw/slice_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

std::string letter(size_t piece) {
  const std::string name(1, static_cast<char>('a' + piece % 26));
  return piece < 26 ? name : name + std::to_string(piece / 26);
}

}  // namespace

SliceNames::SliceNames(const collective::Plan& plan) : cuts_{0, plan.count} {
  for (const collective::Transfer& t : plan.transfers)
    for (const int64_t cut : {t.slice.begin, t.slice.end})
      cuts_.push_back(std::clamp<int64_t>(cut, 0, plan.count));
  std::ranges::sort(cuts_);
  const auto rest = std::ranges::unique(cuts_);
  cuts_.erase(rest.begin(), rest.end());
}

std::string SliceNames::name(const collective::Slice& slice) const {
  const auto piece = [this](int64_t cut) {
    return static_cast<size_t>(std::ranges::lower_bound(cuts_, cut) - cuts_.begin());
  };
  const size_t begin = piece(slice.begin), end = piece(slice.end);
  if (end - begin > 3) return letter(begin) + "-" + letter(end - 1);
  std::string name;
  for (size_t i = begin; i < end; ++i) name += letter(i);
  return name;
}

std::string SliceNames::colour(const collective::Slice& slice) const {
  const double middle = static_cast<double>(slice.begin + slice.end) / 2;
  const double place = middle / std::max(1.0, static_cast<double>(cuts_.back()));
  // From blue (210) over red round to green (150): the ends must not look alike.
  return fmt::format("hsl({:.0f}, 70%, 40%)", 210 + place * 300 - (place * 300 > 150 ? 360 : 0));
}

}  // namespace lockstep::apps
