// Plans and their checker: every algorithm is proved for every small number of ranks, planted faults are
// caught, and what the checker accepts is right when it is carried out, in whatever order a round runs.
#include "parallel/collective/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "kernels/check.h"
#include "parallel/collective/checker.h"
#include "tests/error_of.h"

namespace lockstep::collective {
namespace {

std::string violation(const Plan& plan) {
  try {
    check(plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Plan, EveryAlgorithmIsProvedFor1To33RanksAndCountsAroundThem) {
  for (const std::string& name : algorithm_names()) {
    const Algorithm algorithm = algorithm_named(name);
    for (int n = 1; n <= 33; ++n) {
      std::set<int64_t> counts{0, 1, n - 1, n, n + 1, 2 * n + 1, 32 * n - 1, 32 * n, 32 * n + 33, 1000003};
      for (const int64_t count : counts) {
        const Plan plan = algorithm(n, count);
        EXPECT_EQ(plan.ranks, n);
        EXPECT_EQ(plan.count, count);
        EXPECT_EQ(violation(plan), "") << name << ", " << n << " ranks, " << count << " elements";
      }
    }
  }
}

TEST(Plan, OneRankAndNoElementsNeedNoTransfers) {
  for (const std::string& name : algorithm_names()) {
    EXPECT_TRUE(algorithm_named(name)(1, 100).transfers.empty()) << name;
    EXPECT_TRUE(algorithm_named(name)(5, 0).transfers.empty()) << name;
  }
}

TEST(Plan, RefusesImpossibleSizes) {
  for (const std::string& name : algorithm_names()) {
    EXPECT_THROW(algorithm_named(name)(0, 10), Error) << name;
    EXPECT_THROW(algorithm_named(name)(2, -1), Error) << name;
    EXPECT_EQ(error_of([&] { algorithm_named(name)(2'000'000'000, 10); }),
              "plan: 2000000000 ranks: there may be 1 to 1024");
    EXPECT_EQ(error_of([&] { algorithm_named(name)(2, int64_t{1} << 62); }),
              "plan: 4611686018427387904 elements: there may be 0 to 281474976710656");
    check(algorithm_named(name)(8, kMostElements));
  }
}

// Rounds, and the elements that the busiest rank sends: the costs that plan.cc states.
struct Cost {
  int rounds = 0;
  int64_t busiest_port = 0;
};

Cost cost_of(const Plan& plan) {
  Cost cost;
  std::vector<int64_t> out(plan.ranks), in(plan.ranks);
  for (const Transfer& t : plan.transfers) {
    cost.rounds = std::max(cost.rounds, t.round + 1);
    out[t.source] += t.slice.size();
    in[t.destination] += t.slice.size();
  }
  cost.busiest_port = std::max(*std::ranges::max_element(out), *std::ranges::max_element(in));
  return cost;
}

TEST(Plan, CostsWhatItsCommentStates) {
  for (int n = 2; n <= 17; ++n) {
    const int64_t count = 3200 * n;  // divides evenly
    const Cost of_star = cost_of(star(n, count));
    EXPECT_EQ(of_star.rounds, n);
    EXPECT_EQ(of_star.busiest_port, (n - 1) * count);
    const Cost of_ring = cost_of(ring(n, count));
    EXPECT_EQ(of_ring.rounds, 2 * (n - 1));
    EXPECT_EQ(of_ring.busiest_port, 2 * (n - 1) * count / n);
    const Cost of_tree = cost_of(tree(n, count));
    const int levels = static_cast<int>(std::log2(n));
    EXPECT_EQ(of_tree.rounds, 3 * levels);
    EXPECT_LE(of_tree.busiest_port, 3 * count);
  }
}

TEST(Plan, RingSendsToTheRightNeighbourOnly) {
  const Plan plan = ring(4, 8);
  ASSERT_EQ(plan.transfers.size(), 24u);
  for (const Transfer& t : plan.transfers) EXPECT_EQ(t.destination, (t.source + 1) % 4) << to_string(t);
  EXPECT_EQ(to_string(plan.transfers[0]), "round 0: 0 -> 1 add [0, 2)");
  EXPECT_EQ(to_string(plan.transfers[4]), "round 1: 0 -> 1 add [6, 8)");
  EXPECT_EQ(to_string(plan.transfers[12]), "round 3: 0 -> 1 copy [2, 4)");
}

TEST(Plan, RingSlicesOfLongBuffersBeginOnWholeLines) {
  for (const Transfer& t : ring(5, 1000003).transfers) EXPECT_EQ(t.slice.begin % 32, 0) << to_string(t);
}

TEST(Plan, UnknownAlgorithmNamesTheNearest) {
  EXPECT_EQ(algorithm_named("tree"), &tree);
  try {
    algorithm_named("rign", "--allreduce");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "--allreduce: unknown name 'rign', did you mean 'ring'? (ring, star, tree, one_shot, two_shot)");
  }
}

// --- planted faults

TEST(Checker, CatchesEveryDroppedTransfer) {
  for (const std::string& name : algorithm_names()) {
    for (const int n : {2, 3, 4, 7, 8}) {
      const Plan good = algorithm_named(name)(n, 4 * n);
      for (size_t i = 0; i < good.transfers.size(); ++i) {
        Plan bad = good;
        bad.transfers.erase(bad.transfers.begin() + i);
        EXPECT_NE(violation(bad), "") << name << " without " << to_string(good.transfers[i]);
      }
    }
  }
}

TEST(Checker, CatchesEveryDoubledTransfer) {
  for (const std::string& name : algorithm_names()) {
    for (const int n : {2, 3, 4, 7, 8}) {
      const Plan good = algorithm_named(name)(n, 4 * n);
      for (size_t i = 0; i < good.transfers.size(); ++i) {
        Plan bad = good;
        bad.transfers.insert(bad.transfers.begin() + i, good.transfers[i]);
        EXPECT_NE(violation(bad), "") << name << " with twice " << to_string(good.transfers[i]);
      }
    }
  }
}

TEST(Checker, CatchesEverySwappedPairOfEnds) {
  for (const std::string& name : algorithm_names()) {
    for (const int n : {2, 3, 4, 7, 8}) {
      const Plan good = algorithm_named(name)(n, 4 * n);
      for (size_t i = 0; i < good.transfers.size(); ++i) {
        Plan bad = good;
        std::swap(bad.transfers[i].source, bad.transfers[i].destination);
        EXPECT_NE(violation(bad), "") << name << " with turned " << to_string(good.transfers[i]);
      }
    }
  }
}

// In a ring every transfer passes on what arrived in the round before, so none may be early.
TEST(Checker, CatchesEveryEarlyTransferOfARing) {
  for (const int n : {2, 3, 4, 7, 8}) {
    const Plan good = ring(n, 4 * n);
    for (size_t i = 0; i < good.transfers.size(); ++i) {
      if (good.transfers[i].round == 0) continue;
      Plan bad = good;
      --bad.transfers[i].round;
      std::ranges::stable_sort(bad.transfers, {}, &Transfer::round);
      EXPECT_NE(violation(bad), "") << "early " << to_string(good.transfers[i]);
    }
  }
}

TEST(Checker, CatchesEveryWrongSliceOfARing) {
  for (const int n : {2, 3, 4, 7, 8}) {
    const Plan good = ring(n, 4 * n);
    for (size_t i = 0; i < good.transfers.size(); ++i) {
      for (const Slice& change :
           {Slice{-1, 0}, Slice{1, 0}, Slice{0, -1}, Slice{0, 1}, Slice{4, 4}, Slice{-4, -4}}) {
        Plan bad = good;
        bad.transfers[i].slice.begin += change.begin;
        bad.transfers[i].slice.end += change.end;
        EXPECT_NE(violation(bad), "")
            << to_string(bad.transfers[i]) << " for " << to_string(good.transfers[i]);
      }
    }
  }
}

TEST(Checker, CatchesEveryWrongAction) {
  for (const std::string& name : algorithm_names()) {
    const Plan good = algorithm_named(name)(4, 16);
    for (size_t i = 0; i < good.transfers.size(); ++i) {
      Plan bad = good;
      Action& action = bad.transfers[i].action;
      action = action == Action::add ? Action::copy : Action::add;
      EXPECT_NE(violation(bad), "") << name << " with " << to_string(bad.transfers[i]);
    }
  }
}

TEST(Checker, SaysWhatIsWrong) {
  const Transfer up{0, 1, 0, {0, 8}, Action::add}, down{1, 0, 1, {0, 8}, Action::copy};
  EXPECT_EQ(violation({2, 8, {up, down}}), "");
  EXPECT_EQ(violation({2'000'000'000, 8, {}}), "plan: 2000000000 ranks: there may be 1 to 1024");
  EXPECT_EQ(violation({2, 8, {up}}),
            "plan: rank 1 ends without the contribution of rank 0 to elements [0, 8)");
  EXPECT_EQ(
      violation({2, 8, {up, {0, 0, 1, {0, 8}, Action::copy}}}),
      "plan: round 0: 1 -> 0 add [0, 8) reads elements of rank 1 that are not ready: round 0: 0 -> 1 copy "
      "[0, 8) writes them in the same round");
  EXPECT_EQ(
      violation({2, 8, {up, {1, 1, 0, {2, 4}, Action::add}, {2, 0, 1, {0, 8}, Action::copy}}}),
      "plan: round 1: 1 -> 0 add [2, 4) adds the contribution of rank 1 to elements [2, 4) a second time");
  EXPECT_EQ(
      violation({3, 8, {up, {0, 2, 0, {7, 8}, Action::add}}}),
      "plan: round 0: 1 -> 0 add [0, 8) and round 0: 2 -> 0 add [7, 8) write the same elements of rank 0 in "
      "one round");
  EXPECT_EQ(violation({2, 8, {up, {1, 0, 1, {0, 9}, Action::copy}}}),
            "plan: round 1: 0 -> 1 copy [0, 9): the slice is empty or leaves [0, 8)");
  EXPECT_EQ(violation({2, 8, {up, {1, 0, 1, {3, 3}, Action::copy}}}),
            "plan: round 1: 0 -> 1 copy [3, 3): the slice is empty or leaves [0, 8)");
  EXPECT_EQ(violation({2, 8, {up, {1, 0, 0, {0, 8}, Action::copy}}}),
            "plan: round 1: 0 -> 0 copy [0, 8) sends from a rank to itself");
  EXPECT_EQ(violation({2, 8, {up, {1, 0, 2, {0, 8}, Action::copy}}}),
            "plan: round 1: 0 -> 2 copy [0, 8) names rank 2 of 2");
  EXPECT_EQ(violation({2, 8, {down, up}}), "plan: round 0: 1 -> 0 add [0, 8) is listed after round 1");
}

// Carries a plan out on numbers: rank r contributes 8^r to every element, so that a sum tells how often each
// contribution is in it. A round's transfers run one after the other, in a random order.
bool sums_up(const Plan& plan, std::mt19937& random) {
  std::vector<std::vector<int64_t>> buffer(plan.ranks, std::vector<int64_t>(plan.count));
  int64_t want = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    std::ranges::fill(buffer[rank], int64_t{1} << (3 * rank));
    want += int64_t{1} << (3 * rank);
  }
  auto begin = plan.transfers.begin();
  while (begin != plan.transfers.end()) {
    const auto end =
        std::find_if(begin, plan.transfers.end(), [&](const Transfer& t) { return t.round != begin->round; });
    std::vector<Transfer> round(begin, end);
    std::ranges::shuffle(round, random);
    for (const Transfer& t : round)
      for (int64_t i = t.slice.begin; i < t.slice.end; ++i)
        buffer[t.destination][i] =
            buffer[t.source][i] + (t.action == Action::add ? buffer[t.destination][i] : int64_t{0});
    begin = end;
  }
  for (const auto& elements : buffer)
    for (const int64_t element : elements)
      if (element != want) return false;
  return true;
}

// One to three random changes to a plan; some leave it right (a transfer moved to another round of its own).
Plan disturbed(Plan plan, std::mt19937& random) {
  const auto below = [&](int64_t n) { return static_cast<int>(random() % n); };
  for (int changes = 1 + below(3); changes > 0; --changes) {
    if (plan.transfers.empty()) break;
    Transfer& t = plan.transfers[below(plan.transfers.size())];
    switch (below(6)) {
      case 0:
        t.round = below(2 * plan.ranks + 1);
        break;
      case 1:
        t.source = below(plan.ranks);
        break;
      case 2:
        t.destination = below(plan.ranks);
        break;
      case 3:
        t.slice.begin = below(plan.count);
        break;
      case 4:
        plan.transfers.push_back(Transfer(t));
        break;
      case 5:
        std::swap(t.round, plan.transfers[below(plan.transfers.size())].round);
        break;
    }
    std::ranges::stable_sort(plan.transfers, {}, &Transfer::round);
  }
  return plan;
}

TEST(Checker, WhatItAcceptsIsRightInAnyOrderOfARound) {
  const unsigned seed = 20240;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  int accepted = 0, rejected = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::vector<std::string> names = algorithm_names();
    const int n = 2 + static_cast<int>(random() % 5);
    const Plan plan = disturbed(algorithm_named(names[random() % names.size()])(n, 1 + random() % 9), random);
    if (violation(plan) != "") {
      ++rejected;
      continue;
    }
    ++accepted;
    for (int order = 0; order < 3; ++order) ASSERT_TRUE(sums_up(plan, random)) << "disturbed plan " << i;
  }
  // Both happen, or this test would say nothing.
  EXPECT_GT(accepted, 100);
  EXPECT_GT(rejected, 100);
}

}  // namespace
}  // namespace lockstep::collective
