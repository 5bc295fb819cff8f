#include "parallel/collective/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/check.h"

namespace lockstep::collective {
namespace {

constexpr int kNone = -1, kAll = -2;

// A violation in one interval of elements. The least one is the first: by round, then by what is looked at
// first in a round.
struct Found {
  enum Kind { two_writers, early_read, added_twice, missing, extra };
  int round;
  Kind kind;
  int transfer, other;  // the faulty transfer, and the one that it collides with
  int rank, from;       // who has a contribution of whom twice, not, or too much
  Slice slice;
  auto order() const { return std::tuple(round, kind, transfer, rank, from); }
  bool same_but_for_slice(const Found& f) const { return order() == f.order() && other == f.other; }
};

// No transfer begins or ends inside an interval, so its elements share one fate: a sweep takes one interval
// after the other, with the transfers that cover it, and follows what each rank holds.
class Sweep {
 public:
  explicit Sweep(const Plan& plan)
      : plan_(plan),
        words_((static_cast<size_t>(plan.ranks) + 63) / 64),
        holds_(static_cast<size_t>(plan.ranks) * words_),
        known_(static_cast<size_t>(plan.ranks)),
        writer_(static_cast<size_t>(plan.ranks)) {}

  // The first violation of all intervals.
  std::optional<Found> run() {
    const std::vector<int64_t> cuts = cut();
    std::vector<int> by_begin(plan_.transfers.size());
    std::iota(by_begin.begin(), by_begin.end(), 0);
    std::ranges::stable_sort(by_begin, {}, [&](int t) { return plan_.transfers[t].slice.begin; });
    auto next = by_begin.begin();
    std::optional<Found> first;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      slice_ = {cuts[i], cuts[i + 1]};
      std::erase_if(covering_, [&](int t) { return plan_.transfers[t].slice.end <= slice_.begin; });
      const auto old = static_cast<std::ptrdiff_t>(covering_.size());
      for (; next != by_begin.end() && plan_.transfers[*next].slice.begin == slice_.begin; ++next)
        covering_.push_back(*next);
      std::inplace_merge(covering_.begin(), covering_.begin() + old, covering_.end());
      const std::optional<Found> found = follow();
      if (!found) continue;
      if (!first || found->order() < first->order())
        first = found;
      else if (first->same_but_for_slice(*found) && first->slice.end == found->slice.begin)
        first->slice.end = found->slice.end;
    }
    return first;
  }

  // Of the transfers that cover the interval at `begin`: the last before `until` that brought `rank` the
  // contribution of `from`; none where it held it from the beginning.
  int who_brought(int rank, int from, const Slice& slice, int until) {
    slice_ = slice;
    restart();
    int brought = kNone;
    for (int i = 0; i < until; ++i) {
      const Transfer& t = plan_.transfers[i];
      if (t.slice.begin > slice.begin || t.slice.end <= slice.begin) continue;
      const bool before = t.destination == rank && has(rank, from);
      move(t);
      if (t.destination == rank && has(rank, from) && !before) brought = i;
    }
    return brought;
  }

 private:
  std::vector<int64_t> cut() const {
    std::vector<int64_t> cuts{0, plan_.count};
    for (const Transfer& t : plan_.transfers) cuts.insert(cuts.end(), {t.slice.begin, t.slice.end});
    const Slice all{0, plan_.count};
    const bool to_all = plan_.goal == Goal::all_to_all;
    if (to_all || plan_.goal == Goal::reduce_scatter || plan_.goal == Goal::all_gather)
      for (int i = 0; i < plan_.ranks; ++i) {
        cuts.push_back(slice_of(all, plan_.ranks, i).begin);
        for (int part = 0; to_all && part < plan_.ranks; ++part)
          cuts.push_back(slice_of(slice_of(all, plan_.ranks, i), plan_.ranks, part).begin);
      }
    std::ranges::sort(cuts);
    const auto rest = std::ranges::unique(cuts);
    cuts.erase(rest.begin(), rest.end());
    return cuts;
  }

  // Follows the transfers of one interval, round by round.
  std::optional<Found> follow() {
    restart();
    for (auto begin = covering_.begin(); begin != covering_.end();) {
      const int round = plan_.transfers[*begin].round;
      const auto end =
          std::find_if(begin, covering_.end(), [&](int t) { return plan_.transfers[t].round != round; });
      // All writes of a round are noted before any read is judged: the order within a round means nothing.
      for (auto t = begin; t != end; ++t) {
        int& writer = writer_of(plan_.transfers[*t].destination);
        if (writer != kNone && plan_.transfers[writer].round == round)
          return Found{round, Found::two_writers, *t, writer, kNone, kNone, slice_};
        writer = *t;
      }
      for (auto t = begin; t != end; ++t) {
        const int writer = writer_of(plan_.transfers[*t].source);
        if (writer != kNone && plan_.transfers[writer].round == round)
          return Found{round, Found::early_read, *t, writer, kNone, kNone, slice_};
      }
      for (auto t = begin; t != end; ++t)
        if (const int twice = move(plan_.transfers[*t]); twice != kNone)
          return Found{round, Found::added_twice, *t, kNone, plan_.transfers[*t].destination, twice, slice_};
      begin = end;
    }
    return result();
  }

  // A new interval: what is known of the ranks is out of date, and they hold their own contributions.
  void restart() { ++interval_; }

  uint64_t* set_of(int rank) {
    uint64_t* set = &holds_[static_cast<size_t>(rank) * words_];
    if (known_[rank] != interval_) {
      known_[rank] = interval_;
      writer_[rank] = kNone;
      std::fill(set, set + words_, 0);
      set[rank / 64] |= uint64_t{1} << (rank % 64);
    }
    return set;
  }

  int& writer_of(int rank) {
    set_of(rank);
    return writer_[rank];
  }

  bool has(int rank, int from) { return (set_of(rank)[from / 64] >> (from % 64) & 1) != 0; }

  // Returns a rank whose contribution is then counted twice; else kNone.
  int move(const Transfer& t) {
    const uint64_t* source = set_of(t.source);
    uint64_t* destination = set_of(t.destination);
    if (t.action == Action::copy) {
      std::copy(source, source + words_, destination);
      return kNone;
    }
    for (size_t word = 0; word < words_; ++word)
      if (const uint64_t both = source[word] & destination[word]; both != 0)
        return static_cast<int>(64 * word) + std::countr_zero(both);
    for (size_t word = 0; word < words_; ++word) destination[word] |= source[word];
    return kNone;
  }

  // Those that the goal asks something of: from the first to before the last.
  std::pair<int, int> ranks_of_goal(int shard, int part) const {
    switch (plan_.goal) {
      case Goal::reduce:
        return {plan_.root, plan_.root + 1};
      case Goal::reduce_scatter:
        return {shard, shard + 1};
      case Goal::all_to_all:
        return {part, part + 1};
      default:
        return {0, plan_.ranks};
    }
  }

  // The rank whose contribution alone they have to hold; kAll: the sum of all.
  int wanted(int shard) const {
    switch (plan_.goal) {
      case Goal::broadcast:
        return plan_.root;
      case Goal::all_gather:
      case Goal::all_to_all:
        return shard;
      default:
        return kAll;
    }
  }

  std::optional<Found> result() {
    const int round = plan_.transfers.empty() ? 0 : plan_.transfers.back().round + 1;
    const int n = plan_.ranks;
    const auto slice_at = [&](const Slice& whole) {  // the one of n in which the interval lies
      int low = 0, high = n - 1;
      while (low < high) {
        const int middle = (low + high) / 2;
        slice_of(whole, n, middle).end <= slice_.begin ? low = middle + 1 : high = middle;
      }
      return low;
    };
    const Slice all{0, plan_.count};
    const int shard = slice_at(all), part = slice_at(slice_of(all, n, shard));
    const auto [first, last] = ranks_of_goal(shard, part);
    for (int rank = first; rank < last; ++rank) {
      const int want = wanted(shard);
      const uint64_t* set = set_of(rank);
      int held = 0;
      for (size_t word = 0; word < words_; ++word) held += std::popcount(set[word]);
      if (held == (want == kAll ? n : 1) && (want == kAll || has(rank, want))) continue;
      for (int from = 0; from < n; ++from)
        if ((want == kAll || from == want) && !has(rank, from))
          return Found{round, Found::missing, kNone, kNone, rank, from, slice_};
      for (int from = 0; from < n; ++from)
        if (from != want && has(rank, from))
          return Found{round, Found::extra, kNone, want, rank, from, slice_};
    }
    return {};
  }

  const Plan& plan_;
  const size_t words_;
  Slice slice_{0, 0};            // the interval
  std::vector<int> covering_;    // its transfers, as they are listed
  std::vector<uint64_t> holds_;  // by rank, `words_` each: the ranks whose contributions are in its sum
  int64_t interval_ = 0;         // counted from 1
  std::vector<int64_t> known_;   // by rank: the interval that its entries in holds_ and writer_ are of
  std::vector<int> writer_;      // by rank: the latest transfer that wrote
};

// What is wrong with a transfer by itself.
std::string fault_of(const Transfer& t, const Plan& plan, int round) {
  const std::string name = to_string(t);
  if (t.round < 0) return fmt::format("{} has a negative round", name);
  if (t.round < round) return fmt::format("{} is listed after round {}", name, round);
  for (const int rank : {t.source, t.destination})
    if (rank < 0 || rank >= plan.ranks) return fmt::format("{} names rank {} of {}", name, rank, plan.ranks);
  if (t.source == t.destination) return name + " sends from a rank to itself";
  if (t.slice.begin < 0 || t.slice.begin >= t.slice.end || t.slice.end > plan.count)
    return fmt::format("{}: the slice is empty or leaves [0, {})", name, plan.count);
  return "";
}

// Whether a value can get from one rank to the other, whatever the direction of the transfers.
bool connected(const Plan& plan, int a, int b) {
  std::vector<int> group(static_cast<size_t>(plan.ranks));
  std::iota(group.begin(), group.end(), 0);
  const auto first_of = [&](int rank) {
    while (group[rank] != rank) rank = group[rank] = group[group[rank]];
    return rank;
  };
  for (const Transfer& t : plan.transfers) group[first_of(t.source)] = first_of(t.destination);
  return first_of(a) == first_of(b);
}

std::string in_words(const Found& f, const Plan& plan, Sweep& sweep) {
  const auto transfer = [&](int i) { return to_string(plan.transfers[i]); };
  const std::string elements = fmt::format("[{}, {})", f.slice.begin, f.slice.end);
  switch (f.kind) {
    case Found::two_writers:
      return fmt::format("{} and {} write the same elements of rank {} in one round", transfer(f.other),
                         transfer(f.transfer), plan.transfers[f.transfer].destination);
    case Found::early_read:
      return fmt::format("{} reads elements of rank {} that are not ready: {} writes them in the same round",
                         transfer(f.transfer), plan.transfers[f.transfer].source, transfer(f.other));
    case Found::added_twice: {
      const int before = sweep.who_brought(f.rank, f.from, f.slice, f.transfer);
      if (before == kNone)
        return fmt::format("rank {} adds slice {} of its own again, in round {}: {}", f.rank, elements,
                           f.round, transfer(f.transfer));
      const Transfer& first = plan.transfers[before];
      return fmt::format("rank {} {} slice [{}, {}) of rank {} twice, in rounds {} and {}: {}, {}", f.rank,
                         first.action == Action::add ? "adds" : "gets", f.slice.begin,
                         std::min(f.slice.end, first.slice.end), f.from, first.round, f.round,
                         transfer(before), transfer(f.transfer));
    }
    case Found::missing:
      return fmt::format("rank {} ends without the contribution of rank {} to elements {}{}", f.rank, f.from,
                         elements, connected(plan, f.rank, f.from) ? "" : ": no transfers connect them");
    case Found::extra:
      return fmt::format(
          "rank {} ends with the contribution of rank {} in elements {}, where only that of "
          "rank {} belongs",
          f.rank, f.from, elements, f.other);
  }
  return "";
}

// A fused plan says no more than which rank sums up which slice: everything else is taken to be as its mark
// says.
std::optional<Violation> fault_of_fused(const Plan& plan) {
  std::map<std::pair<int64_t, int64_t>, std::vector<const Transfer*>> by_slice;
  for (const Transfer& t : plan.transfers) by_slice[{t.slice.begin, t.slice.end}].push_back(&t);
  for (const auto& [slice, transfers] : by_slice) {
    const int owner = transfers.front()->destination;
    std::set<int> added, copied;
    for (const Transfer* t : transfers)
      if (t->action == Action::add && t->destination == owner)
        added.insert(t->source);
      else if (t->action == Action::copy && t->source == owner)
        copied.insert(t->destination);
    const auto others = static_cast<size_t>(plan.ranks) - 1;
    if (transfers.size() != 2 * others || added.size() != others || copied.size() != others)
      return Violation{
          fmt::format("it is fused, so elements [{}, {}) must be added up in one rank and copied "
                      "from it to all others",
                      slice.first, slice.second),
          static_cast<int>(transfers.front() - plan.transfers.data()), -1};
  }
  return {};
}

}  // namespace

std::optional<Violation> find_violation(const Plan& plan) {
  check_sizes(plan.ranks, plan.count);
  if (plan.root < 0 || plan.root >= plan.ranks)
    return Violation{fmt::format("the root is rank {} of {}", plan.root, plan.ranks), kNone, kNone};
  int round = 0;
  for (size_t i = 0; i < plan.transfers.size(); ++i) {
    if (const std::string fault = fault_of(plan.transfers[i], plan, round); !fault.empty())
      return Violation{fault, static_cast<int>(i), kNone};
    round = plan.transfers[i].round;
  }
  Sweep sweep(plan);
  const std::optional<Found> found = sweep.run();
  if (!found) return plan.fused ? fault_of_fused(plan) : std::nullopt;
  return Violation{in_words(*found, plan, sweep), found->transfer,
                   found->transfer == kNone ? found->rank : kNone};
}

void check(const Plan& plan) {
  if (const std::optional<Violation> violation = find_violation(plan))
    throw Error("plan: " + violation->what);
}

}  // namespace lockstep::collective
