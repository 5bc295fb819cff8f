// Plans: every algorithm is proved for every small number of ranks, and costs what its comment and
// docs/allreduce.md state.
#include "parallel/collective/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "kernels/check.h"
#include "tests/error_of.h"
#include "tests/parallel/violation.h"

namespace lockstep::collective {
namespace {

std::vector<NamedAlgorithm> all_of_both_tables() {
  std::vector<NamedAlgorithm> all = algorithms();
  all.insert(all.end(), other_collectives().begin(), other_collectives().end());
  return all;
}

TEST(Plan, EveryAlgorithmIsProvedFor1To33RanksAndCountsAroundThem) {
  for (const auto& [name, algorithm, in_chunks] : all_of_both_tables()) {
    for (int n = 1; n <= 33; ++n) {
      const std::set<int64_t> counts{
          0,         1,           n - 1,          n,       n + 1,       2 * n + 1, 32 * n - 1, 32 * n, n * n,
          n * n - 1, 32 * n + 33, 32 * n * n + 1, 1000003, 64 * n + 31, 10'000'019};
      for (const int64_t count : counts) {
        const Plan plan = algorithm(n, count);
        EXPECT_EQ(plan.ranks, n);
        EXPECT_EQ(plan.count, count);
        EXPECT_EQ(violation(plan), "") << name << ", " << n << " ranks, " << count << " elements";
      }
      if (in_chunks == nullptr) continue;
      for (const int chunks : {1, 2, 3, 5, 16})
        for (const int64_t count : {1, 7, n + 1, 32 * n + 33, 1000003})
          EXPECT_EQ(violation(in_chunks(n, count, chunks)), "")
              << name << ", " << n << " ranks, " << count << " elements, " << chunks << " chunks";
    }
  }
}

TEST(Plan, EveryAlgorithmIsProvedFor64RanksAndMany) {
  for (const auto& [name, algorithm, in_chunks] : all_of_both_tables()) {
    for (const int n : {48, 63, 64, 65, 128}) EXPECT_EQ(violation(algorithm(n, 1000003)), "") << name;
    if (in_chunks == nullptr) continue;
    EXPECT_EQ(violation(in_chunks(64, 1000003, 200)), "") << name;
  }
}

TEST(Plan, TheTablesHoldPlansForTheirGoals) {
  for (const auto& [name, algorithm, in_chunks] : algorithms())
    EXPECT_EQ(algorithm(5, 100).goal, Goal::allreduce) << name;
  for (const auto& [name, algorithm, in_chunks] : other_collectives())
    EXPECT_EQ(name_of(algorithm(5, 100).goal), name);
}

TEST(Plan, OneRankAndNoElementsNeedNoTransfers) {
  for (const auto& [name, algorithm, in_chunks] : all_of_both_tables()) {
    EXPECT_TRUE(algorithm(1, 100).transfers.empty()) << name;
    EXPECT_TRUE(algorithm(5, 0).transfers.empty()) << name;
  }
}

TEST(Plan, RefusesImpossibleSizes) {
  for (const auto& [name, algorithm, in_chunks] : all_of_both_tables()) {
    EXPECT_THROW(algorithm(0, 10), Error) << name;
    EXPECT_THROW(algorithm(2, -1), Error) << name;
    EXPECT_EQ(error_of([&] { algorithm(2'000'000'000, 10); }),
              "plan: 2000000000 ranks: there may be 1 to 4096");
    EXPECT_EQ(error_of([&] { algorithm(2, int64_t{1} << 62); }),
              "plan: 4611686018427387904 elements: there may be 0 to 281474976710656");
    check(algorithm(8, kMostElements));
    if (in_chunks == nullptr) continue;
    EXPECT_EQ(error_of([&] { in_chunks(4, 100, -1); }), "plan: -1 chunks: there may be 1 to 4096");
    EXPECT_EQ(error_of([&] { in_chunks(4, 100, 5000); }), "plan: 5000 chunks: there may be 1 to 4096");
    check(in_chunks(8, kMostElements, kMostChunks));
  }
}

// --- costs: rounds, and the elements through the busiest port

struct Want {
  int rounds;
  int64_t sent, received;
};

void expect_cost(const Plan& plan, const Want& want, const std::string& name) {
  const Cost cost = cost_of(plan);
  EXPECT_EQ(cost.rounds, want.rounds) << name << ", " << plan.ranks << " ranks";
  EXPECT_EQ(cost.most_sent, want.sent) << name << ", " << plan.ranks << " ranks";
  EXPECT_EQ(cost.most_received, want.received) << name << ", " << plan.ranks << " ranks";
}

TEST(Plan, CostsWhatItsCommentStates) {
  for (int n = 2; n <= 17; ++n) {
    const int64_t count = 64LL * n * n;  // divides evenly
    const int64_t shares = (n - 1) * count / n;
    expect_cost(star(n, count), {n, (n - 1) * count, (n - 1) * count}, "star");
    expect_cost(sharded_star(n, count), {n, 2 * shares, 2 * shares}, "sharded star");
    expect_cost(ring(n, count), {2 * (n - 1), 2 * shares, 2 * shares}, "ring");
    expect_cost(bidirectional_ring(n, count), {2 * (n - 1), 2 * shares, 2 * shares}, "bidirectional ring");
    expect_cost(reduce_scatter(n, count), {n - 1, shares, shares}, "reduce-scatter");
    expect_cost(all_gather(n, count), {n - 1, shares, shares}, "all-gather");
    expect_cost(all_to_all(n, count), {n - 1, shares / n, shares / n}, "all to all");
  }
}

TEST(Plan, HalvingAndDoublingTakesTheFewestRoundsWithTheFewestBytes) {
  for (int n = 2; n <= 33; ++n) {
    const int p = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
    const int levels = std::bit_width(static_cast<unsigned>(p)) - 1;
    const int64_t count = 32LL * 1024;
    const int64_t shares = 2 * (p - 1) * count / p, extra = p < n ? count : 0;
    expect_cost(halving_doubling(n, count), {2 * levels + (p < n ? 2 : 0), shares + extra, shares + extra},
                "halving and doubling");
  }
}

TEST(Plan, TreesTakeAboutThreeRoundsALevelAndOneForEachFurtherChunk) {
  for (int n = 2; n <= 33; ++n) {
    const int floor = std::bit_width(static_cast<unsigned>(n)) - 1;
    const int ceiling = std::bit_width(static_cast<unsigned>(n) - 1);
    for (const int k : {1, 2, 7}) {
      const int64_t count = 64LL * 7 * 16;
      const Cost one = cost_of(tree(n, count, k)), two = cost_of(double_tree(n, count, k));
      EXPECT_LE(one.rounds, 3 * floor - 1 + k) << n;
      EXPECT_LE(std::max(one.most_sent, one.most_received), 3 * count) << n;
      EXPECT_LE(two.rounds, 3 * ceiling - 2 + k) << n;
      EXPECT_LE(std::max(two.most_sent, two.most_received), 2 * count) << n;
      const Cost up = cost_of(reduce(n, count, k)), down = cost_of(broadcast(n, count, k));
      EXPECT_LE(up.rounds, 2 * floor - 1 + k) << n;
      EXPECT_LE(up.most_received, 2 * count) << n;
      EXPECT_EQ(up.most_sent, count) << n;
      EXPECT_EQ(down.rounds, floor - 1 + k) << n;
      EXPECT_LE(down.most_sent, 2 * count) << n;
      EXPECT_EQ(down.most_received, count) << n;
    }
    if (n == 4) {  // the child that is ready first comes first
      EXPECT_EQ(cost_of(tree(n, 100, 1)).rounds, 4);
    }
    // Full trees reach the bounds.
    if (n == (1 << (floor + 1)) - 1 && n > 3) {
      EXPECT_EQ(cost_of(tree(n, 3200, 5)).rounds, 3 * floor - 1 + 5) << n;
      EXPECT_EQ(cost_of(tree(n, 3200, 5)).most_sent, 9600) << n;
    }
    if (n == (1 << floor) && n > 4) {
      EXPECT_EQ(cost_of(double_tree(n, 6400, 5)).rounds, 3 * floor - 2 + 5) << n;
      EXPECT_EQ(cost_of(double_tree(n, 6400, 5)).most_sent, 2 * 6400) << n;
    }
  }
}

// Ranks that receive additions of elements [begin, end), with how many others send them.
std::map<int, std::set<int>> children(const Plan& plan, const Slice& part) {
  std::map<int, std::set<int>> of;
  for (const Transfer& t : plan.transfers)
    if (t.action == Action::add && t.slice.begin >= part.begin && t.slice.end <= part.end)
      of[t.destination].insert(t.source);
  return of;
}

TEST(Plan, InTheDoubleTreeARankThatIsInnerInOneTreeIsALeafOfTheOther) {
  for (int n = 2; n <= 33; ++n) {
    const Plan plan = double_tree(n, 6400, 3);
    const auto one = children(plan, {0, 3200}), other = children(plan, {3200, 6400});
    int inner_in_both = 0;
    for (int rank = 0; rank < n; ++rank) {
      for (const auto& tree : {one, other})
        EXPECT_TRUE(!tree.contains(rank) || tree.at(rank).size() <= 2u) << n;
      if (!one.contains(rank) || !other.contains(rank)) continue;
      ++inner_in_both;  // an odd number of ranks cannot be divided: one has a single child in each
      EXPECT_EQ(one.at(rank).size() + other.at(rank).size(), 2u) << n;
    }
    EXPECT_EQ(inner_in_both, n % 2) << n;
  }
}

TEST(Plan, ABidirectionalRingCarriesHalfOfEverythingEachWay) {
  for (const int n : {3, 4, 9}) {
    std::map<std::pair<int, int>, int64_t> carried;
    for (const Transfer& t : bidirectional_ring(n, 640 * n).transfers)
      carried[{t.source, t.destination}] += t.slice.size();
    EXPECT_EQ(carried.size(), 2u * n);
    for (const auto& [ends, elements] : carried) {
      EXPECT_TRUE((ends.first + 1) % n == ends.second || (ends.second + 1) % n == ends.first);
      EXPECT_EQ(elements, 640 * (n - 1));
    }
  }
}

TEST(Plan, TreesCutLongBuffersIntoChunksByThemselves) {
  EXPECT_EQ(tree(8, 1000).transfers.size(), 14u);  // one chunk
  EXPECT_GT(tree(8, 11'000'000).transfers.size(), 14u * 8);
  EXPECT_LE(tree(8, kMostElements).transfers.size(), 14u * 64);
}

TEST(Plan, RingSendsToTheRightNeighbourOnly) {
  const Plan plan = ring(4, 8);
  ASSERT_EQ(plan.transfers.size(), 24u);
  for (const Transfer& t : plan.transfers) EXPECT_EQ(t.destination, (t.source + 1) % 4) << to_string(t);
  EXPECT_EQ(to_string(plan.transfers[0]), "round 0: 0 -> 1 add [0, 2)");
  EXPECT_EQ(to_string(plan.transfers[4]), "round 1: 0 -> 1 add [6, 8)");
  EXPECT_EQ(to_string(plan.transfers[12]), "round 3: 0 -> 1 copy [2, 4)");
}

TEST(Plan, SlicesOfLongBuffersBeginOnWholeLines) {
  for (const Algorithm algorithm : {Algorithm{ring}, Algorithm{bidirectional_ring}, Algorithm{sharded_star},
                                    Algorithm{tree}, Algorithm{double_tree}, Algorithm{halving_doubling}})
    for (const Transfer& t : algorithm(5, 1000003).transfers)
      EXPECT_EQ(t.slice.begin % 32, 0) << to_string(t);
}

TEST(Plan, UnknownAlgorithmNamesTheNearest) {
  EXPECT_EQ(algorithm_named("star"), &star);
  const std::string refusal = error_of([] { algorithm_named("rign", "--allreduce"); });
  EXPECT_TRUE(refusal.starts_with("--allreduce: unknown name 'rign', did you mean 'ring'? (ring, "))
      << refusal;
}

TEST(Plan, RingsOverGivenOrdersShareTheBuffer) {
  // The chapter's two rings over eight GPUs, counted from 0.
  const std::vector<Ring> two{{0, 1, 2, 3, 4, 5, 6, 7}, {0, 3, 5, 2, 4, 7, 1, 6}};
  for (const int64_t count : {1, 31, 33, 3200, 1000003}) EXPECT_EQ(violation(rings(two, count)), "") << count;
  expect_cost(rings(two, 4 * 8 * 64), {14, 2 * 7 * 4 * 64, 2 * 7 * 4 * 64}, "rings");
  std::map<std::pair<int, int>, int64_t> carried;
  for (const Transfer& t : rings(two, 4 * 8 * 64).transfers)
    carried[{t.source, t.destination}] += t.slice.size();
  EXPECT_EQ(carried.size(), 32u);
  for (const auto& [ends, elements] : carried) EXPECT_EQ(elements, 14 * 64);
  EXPECT_EQ(violation(rings({{1, 0}}, 10)), "");
  EXPECT_EQ(error_of([] { rings({{0, 1, 2}, {0, 1, 1}}, 10); }),
            "rings: 0-1-1 does not pass through each of 3 ranks once");
  EXPECT_EQ(error_of([] { rings({}, 10); }), "rings: there is none");
}

}  // namespace
}  // namespace lockstep::collective
