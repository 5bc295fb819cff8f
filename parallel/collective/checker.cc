#include "parallel/collective/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/check.h"

namespace lockstep::collective {
namespace {

// The ranks whose values are in a sum.
using Contributions = std::vector<bool>;

// What holds for one rank's elements of one piece: no transfer begins or ends inside a piece, so its elements
// always share one fate.
struct Piece {
  Contributions holds;
  const Transfer* written_by = nullptr;  // the latest
};

class Checker {
 public:
  explicit Checker(const Plan& plan) : plan_(plan) {
    check_shape();
    cut();
    pieces_.assign(plan.ranks, std::vector<Piece>(cuts_.size() - 1));
    for (int rank = 0; rank < plan.ranks; ++rank)
      for (Piece& piece : pieces_[rank]) {
        piece.holds.resize(plan.ranks);
        piece.holds[rank] = true;
      }
  }

  void run() {
    auto begin = plan_.transfers.begin();
    while (begin != plan_.transfers.end()) {
      const auto end = std::find_if(begin, plan_.transfers.end(),
                                    [&](const Transfer& t) { return t.round != begin->round; });
      // All writes of a round are noted before any read is judged: the order within a round means nothing.
      for (auto t = begin; t != end; ++t) note_write(*t);
      for (auto t = begin; t != end; ++t) check_read(*t);
      for (auto t = begin; t != end; ++t) apply(*t);
      begin = end;
    }
    check_result();
  }

 private:
  void check_shape() const {
    check_sizes(plan_.ranks, plan_.count);
    int round = 0;
    for (const Transfer& t : plan_.transfers) {
      if (t.round < round) throw Error(fmt::format("plan: {} is listed after round {}", to_string(t), round));
      round = t.round;
      for (const int rank : {t.source, t.destination})
        if (rank < 0 || rank >= plan_.ranks)
          throw Error(fmt::format("plan: {} names rank {} of {}", to_string(t), rank, plan_.ranks));
      if (t.source == t.destination)
        throw Error(fmt::format("plan: {} sends from a rank to itself", to_string(t)));
      if (t.slice.begin < 0 || t.slice.begin >= t.slice.end || t.slice.end > plan_.count)
        throw Error(fmt::format("plan: {}: the slice is empty or leaves [0, {})", to_string(t), plan_.count));
    }
  }

  void cut() {
    cuts_ = {0, plan_.count};
    for (const Transfer& t : plan_.transfers) cuts_.insert(cuts_.end(), {t.slice.begin, t.slice.end});
    std::ranges::sort(cuts_);
    const auto rest = std::ranges::unique(cuts_);
    cuts_.erase(rest.begin(), rest.end());
    if (plan_.count == 0) cuts_ = {0};  // no piece at all
  }

  // The first and one past the last piece of a slice.
  std::pair<size_t, size_t> pieces_of(const Slice& slice) const {
    const auto index = [&](int64_t cut) { return std::ranges::lower_bound(cuts_, cut) - cuts_.begin(); };
    return {index(slice.begin), index(slice.end)};
  }

  void note_write(const Transfer& t) {
    const auto [begin, end] = pieces_of(t.slice);
    for (size_t i = begin; i < end; ++i) {
      Piece& piece = pieces_[t.destination][i];
      if (piece.written_by != nullptr && piece.written_by->round == t.round)
        throw Error(fmt::format("plan: {} and {} write the same elements of rank {} in one round",
                                to_string(*piece.written_by), to_string(t), t.destination));
      piece.written_by = &t;
    }
  }

  void check_read(const Transfer& t) const {
    const auto [begin, end] = pieces_of(t.slice);
    for (size_t i = begin; i < end; ++i) {
      const Piece& piece = pieces_[t.source][i];
      if (piece.written_by != nullptr && piece.written_by->round == t.round)
        throw Error(
            fmt::format("plan: {} reads elements of rank {} that are not ready: {} writes them in the "
                        "same round",
                        to_string(t), t.source, to_string(*piece.written_by)));
    }
  }

  void apply(const Transfer& t) {
    const auto [begin, end] = pieces_of(t.slice);
    for (size_t i = begin; i < end; ++i) {
      const Contributions& source = pieces_[t.source][i].holds;
      Contributions& destination = pieces_[t.destination][i].holds;
      if (t.action == Action::copy) {
        destination = source;
        continue;
      }
      for (int rank = 0; rank < plan_.ranks; ++rank) {
        if (source[rank] && destination[rank])
          throw Error(
              fmt::format("plan: {} adds the contribution of rank {} to elements [{}, {}) a second time",
                          to_string(t), rank, cuts_[i], cuts_[i + 1]));
        if (source[rank]) destination[rank] = true;
      }
    }
  }

  void check_result() const {
    for (int rank = 0; rank < plan_.ranks; ++rank)
      for (size_t i = 0; i + 1 < cuts_.size(); ++i)
        for (int from = 0; from < plan_.ranks; ++from)
          if (!pieces_[rank][i].holds[from])
            throw Error(
                fmt::format("plan: rank {} ends without the contribution of rank {} to elements [{}, {})",
                            rank, from, cuts_[i], cuts_[i + 1]));
  }

  const Plan& plan_;
  std::vector<int64_t> cuts_;               // piece i is [cuts_[i], cuts_[i + 1])
  std::vector<std::vector<Piece>> pieces_;  // by rank, then piece
};

}  // namespace

void check(const Plan& plan) {
  Checker(plan).run();
}

}  // namespace lockstep::collective
