// The checker: planted faults are caught and told in words, and what it accepts is right when it is carried
// out, in whatever order a round runs.
#include "parallel/collective/checker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "parallel/collective/serial.h"
#include "tests/parallel/violation.h"

namespace lockstep::collective {
namespace {

// Lockstep's own, in which every transfer is needed; in others that are right it need not be so.
const std::vector<NamedAlgorithm> kOwn{{"ring", ring},
                                       {"bidirectional_ring", bidirectional_ring},
                                       {"star", star},
                                       {"sharded_star", sharded_star},
                                       {"tree", tree, tree},
                                       {"double_tree", double_tree, double_tree},
                                       {"halving_doubling", halving_doubling}};

TEST(Checker, CatchesEveryDroppedTransfer) {
  for (const auto& [name, algorithm, in_chunks] : kOwn) {
    for (const int n : {2, 3, 4, 7, 8}) {
      const Plan good = algorithm(n, 4 * n);
      for (size_t i = 0; i < good.transfers.size(); ++i) {
        Plan bad = good;
        bad.transfers.erase(bad.transfers.begin() + i);
        EXPECT_NE(violation(bad), "") << name << " without " << to_string(good.transfers[i]);
      }
    }
  }
}

TEST(Checker, CatchesEveryDoubledTransfer) {
  for (const auto& [name, algorithm, in_chunks] : kOwn) {
    for (const int n : {2, 3, 4, 7, 8}) {
      const Plan good = algorithm(n, 4 * n);
      for (size_t i = 0; i < good.transfers.size(); ++i) {
        Plan bad = good;
        bad.transfers.insert(bad.transfers.begin() + i, good.transfers[i]);
        EXPECT_NE(violation(bad), "") << name << " with twice " << to_string(good.transfers[i]);
      }
    }
  }
}

TEST(Checker, CatchesEverySwappedPairOfEnds) {
  for (const auto& [name, algorithm, in_chunks] : kOwn) {
    for (const int n : {2, 3, 4, 7, 8}) {
      const Plan good = algorithm(n, 4 * n);
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
  for (const auto& [name, algorithm, in_chunks] : kOwn) {
    const Plan good = algorithm(4, 16);
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
  EXPECT_EQ(violation({2'000'000'000, 8, {}}), "plan: 2000000000 ranks: there may be 1 to 4096");
  EXPECT_EQ(violation({2, 8, {up}}),
            "plan: rank 1 ends without the contribution of rank 0 to elements [0, 8)");
  EXPECT_EQ(
      violation({2, 8, {up, {0, 0, 1, {0, 8}, Action::copy}}}),
      "plan: round 0: 1 -> 0 add [0, 8) reads elements of rank 1 that are not ready: round 0: 0 -> 1 copy "
      "[0, 8) writes them in the same round");
  EXPECT_EQ(violation({2, 8, {up, {1, 1, 0, {2, 4}, Action::add}, {2, 0, 1, {0, 8}, Action::copy}}}),
            "plan: rank 0 adds slice [2, 4) of rank 1 twice, in rounds 0 and 1: round 0: 1 -> 0 add [0, 8), "
            "round 1: 1 -> 0 add [2, 4)");
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

TEST(Checker, SaysWhereAContributionCountedTwiceCameFrom) {
  // 0 -> 1 -> 2 -> 0: the sum comes back to a rank that is in it.
  EXPECT_EQ(
      violation(
          {3,
           8,
           {{0, 0, 1, {0, 8}, Action::add}, {1, 1, 2, {0, 8}, Action::add}, {2, 2, 0, {0, 8}, Action::add}}}),
      "plan: rank 0 adds slice [0, 8) of its own again, in round 2: round 2: 2 -> 0 add [0, 8)");
  EXPECT_EQ(
      violation({3,
                 100,
                 {{0, 1, 0, {0, 100}, Action::copy},
                  {3, 0, 2, {0, 50}, Action::add},
                  {5, 1, 2, {25, 75}, Action::add}}}),
      "plan: rank 2 adds slice [25, 50) of rank 1 twice, in rounds 3 and 5: round 3: 0 -> 2 add [0, 50), "
      "round 5: 1 -> 2 add [25, 75)");
  EXPECT_EQ(violation({3, 8, {{0, 1, 0, {0, 4}, Action::copy}, {1, 1, 0, {2, 8}, Action::add}}}),
            "plan: rank 0 gets slice [2, 4) of rank 1 twice, in rounds 0 and 1: round 0: 1 -> 0 copy [0, 4), "
            "round 1: 1 -> 0 add [2, 8)");
}

TEST(Checker, NamesTheFirstFaultAndAllElementsOfIt) {
  // Other transfers cut [0, 90) into pieces; the fault is one. A later fault, in lower elements, comes after.
  Plan plan{3, 90, {{0, 0, 1, {0, 90}, Action::add}}};
  for (int i = 0; i < 8; ++i) plan.transfers.push_back({0, 0, 2, {10 * i, 10 * i + 10}, Action::add});
  plan.transfers.push_back({1, 0, 1, {15, 55}, Action::add});
  plan.transfers.push_back({2, 0, 1, {0, 5}, Action::add});
  EXPECT_EQ(
      violation(plan),
      "plan: rank 1 adds slice [15, 55) of rank 0 twice, in rounds 0 and 1: round 0: 0 -> 1 add [0, 90), "
      "round 1: 0 -> 1 add [15, 55)");
  EXPECT_EQ(find_violation(plan)->transfer, 9);
  plan.transfers[9] = {1, 1, 2, {15, 55}, Action::add};
  plan.transfers[10] = {1, 0, 1, {15, 55}, Action::copy};
  EXPECT_EQ(violation(plan),
            "plan: round 1: 1 -> 2 add [15, 55) reads elements of rank 1 that are not ready: round 1: 0 -> 1 "
            "copy [15, 55) writes them in the same round");
}

TEST(Checker, SaysThatRanksAreNotConnected) {
  const Plan pairs{4,
                   8,
                   {{0, 1, 0, {0, 8}, Action::add},
                    {0, 3, 2, {0, 8}, Action::add},
                    {1, 0, 1, {0, 8}, Action::copy},
                    {1, 2, 3, {0, 8}, Action::copy}}};
  EXPECT_EQ(
      violation(pairs),
      "plan: rank 0 ends without the contribution of rank 2 to elements [0, 8): no transfers connect them");
  EXPECT_EQ(find_violation(pairs)->transfer, -1);
  EXPECT_EQ(find_violation(pairs)->rank, 0);
}

TEST(Checker, HoldsAPlanAgainstItsGoal) {
  const auto as = [](Goal goal, int root, Plan plan) {
    plan.goal = goal;
    plan.root = root;
    return violation(plan);
  };
  const Plan up{2, 8, {{0, 1, 0, {0, 8}, Action::add}}};
  EXPECT_EQ(as(Goal::reduce, 0, up), "");
  EXPECT_EQ(as(Goal::reduce, 1, up),
            "plan: rank 1 ends without the contribution of rank 0 to elements [0, 8)");
  EXPECT_EQ(as(Goal::reduce, 2, up), "plan: the root is rank 2 of 2");
  EXPECT_EQ(as(Goal::broadcast, 1, up),
            "plan: rank 0 ends with the contribution of rank 0 in elements [0, 8), where only that of rank 1 "
            "belongs");
  EXPECT_EQ(as(Goal::broadcast, 1, {2, 8, {{0, 1, 0, {0, 8}, Action::copy}}}), "");
  EXPECT_EQ(as(Goal::reduce_scatter, 0, up),
            "plan: rank 1 ends without the contribution of rank 0 to elements [4, 8)");
  EXPECT_EQ(as(Goal::all_gather, 0, {2, 8, {{0, 1, 0, {4, 8}, Action::copy}}}),
            "plan: rank 1 ends without the contribution of rank 0 to elements [0, 4)");
  EXPECT_EQ(as(Goal::all_to_all, 0, {2, 8, {{0, 1, 0, {4, 6}, Action::copy}}}),
            "plan: rank 1 ends without the contribution of rank 0 to elements [2, 4)");
  for (const auto& [name, algorithm, in_chunks] : other_collectives())
    for (size_t i = 0; i < algorithm(6, 72).transfers.size(); ++i) {
      Plan bad = algorithm(6, 72);
      bad.transfers.erase(bad.transfers.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_NE(violation(bad), "") << name << " without transfer " << i;
    }
}

// A ring whose author wrote & (n - 1) for % n: right for powers of two, and wrong for others.
TEST(Checker, CatchesABitwiseAndWhereARemainderBelongs) {
  const auto masked_ring = [](int n) {
    Plan plan = ring(n, 4 * n);
    for (Transfer& t : plan.transfers) {
      const int step = t.round % (n - 1);
      const int slice = (t.source + (t.action == Action::add ? 0 : 1) - step) & (n - 1);
      t.slice = slice_of({0, 4 * n}, n, slice);
    }
    return plan;
  };
  for (const int n : {2, 4, 8, 16}) EXPECT_EQ(masked_ring(n).transfers, ring(n, 4 * n).transfers);
  for (const int n : {3, 5, 6, 7, 9, 12}) EXPECT_NE(violation(masked_ring(n)), "") << n;
}

// Carries a plan out on numbers: rank r contributes 8^r to every element, so that a sum tells how often each
// contribution is in it. A round's transfers run one after the other, in a random order.
bool sums_up(Plan plan, std::mt19937& random) {
  std::vector<std::vector<int64_t>> values;
  int64_t want = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    values.emplace_back(plan.count, int64_t{1} << (3 * rank));
    want += int64_t{1} << (3 * rank);
  }
  std::ranges::shuffle(plan.transfers, random);
  std::ranges::stable_sort(plan.transfers, {}, &Transfer::round);
  carry_out(plan, values, std::plus<int64_t>());
  for (const auto& elements : values)
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
    const int n = 2 + static_cast<int>(random() % 5);
    const Plan plan = disturbed(kOwn[random() % kOwn.size()].plan(n, 1 + random() % 9), random);
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

TEST(Checker, AFusedPlanSumsEverySliceInOneRank) {
  Plan plan = ring(3, 30);
  plan.fused = true;
  EXPECT_EQ(
      violation(plan),
      "plan: it is fused, so elements [0, 10) must be added up in one rank and copied from it to all others");
  plan = tree(2, 30, 1);
  plan.fused = true;
  EXPECT_EQ(violation(plan), "");
}

}  // namespace
}  // namespace lockstep::collective
