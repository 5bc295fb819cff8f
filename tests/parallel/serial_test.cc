// The oracle by itself: sums written down without a plan, bit for bit, and what every goal asks for.
#include "parallel/collective/serial.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "tests/parallel/buffers.h"

namespace lockstep::collective {
namespace {

Values random_floats(int ranks, int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  Values values(static_cast<size_t>(ranks), std::vector<float>(static_cast<size_t>(count)));
  for (auto& buffer : values)
    for (float& value : buffer) value = normal(random) * std::exp2(normal(random) * 4);
  return values;
}

// Rank after rank, from `start` once around.
float sum_around(const Values& values, size_t start, size_t i) {
  const size_t n = values.size();
  float sum = values[start][i];
  for (size_t j = 1; j < n; ++j) sum = values[(start + j) % n][i] + sum;
  return sum;
}

TEST(CarryOut, AStarSumsFromRank0Up) {
  for (const int n : {1, 2, 3, 8, 17}) {
    const Values values = random_floats(n, 999, 7);
    const Values got = carried_out(star(n, 999), values);
    for (size_t i = 0; i < 999; ++i)
      for (int rank = 0; rank < n; ++rank)
        ASSERT_EQ(std::bit_cast<uint32_t>(got[rank][i]), std::bit_cast<uint32_t>(sum_around(values, 0, i)));
  }
}

TEST(CarryOut, ARingSumsSliceCFromRankCAround) {
  for (const int n : {2, 3, 8, 17})
    for (const int64_t count : {5, 999, 20011}) {
      const Values values = random_floats(n, count, 7);
      const Values got = carried_out(ring(n, count), values);
      for (int c = 0; c < n; ++c) {
        const Slice slice = slice_of({0, count}, n, c);
        for (int64_t i = slice.begin; i < slice.end; ++i)
          for (int rank = 0; rank < n; ++rank)
            ASSERT_EQ(std::bit_cast<uint32_t>(got[rank][i]),
                      std::bit_cast<uint32_t>(sum_around(values, static_cast<size_t>(c), i)))
                << n << " ranks, element " << i;
      }
    }
}

TEST(CarryOut, AShardedStarGivesTheBitsOfARing) {
  for (const int n : {2, 3, 8, 17}) {
    const Values values = random_floats(n, 1000, 7);
    EXPECT_EQ(carried_out(sharded_star(n, 1000), values), carried_out(ring(n, 1000), values))
        << n << " ranks";
  }
}

// So the bits of a sum depend neither on the buffer that it is part of nor on the chunks.
TEST(CarryOut, StarTreeAndHalvingDoublingSumEveryElementInOneOrder) {
  for (const int n : {2, 3, 7, 8, 12, 17}) {
    const Values one = random_floats(n, 1, 7);
    Values values;
    for (const auto& value : one) values.emplace_back(999, value[0]);
    const auto sum = [&](const Plan& plan, const Values& of) { return carried_out(plan, of).front(); };
    const auto expect_one = [&](const Plan& alone, const Plan& plan) {
      EXPECT_EQ(sum(plan, values), std::vector<float>(999, sum(alone, one)[0])) << n << " ranks";
    };
    expect_one(star(n, 1), star(n, 999));
    expect_one(tree(n, 1), tree(n, 999, 5));
    expect_one(halving_doubling(n, 1), halving_doubling(n, 999));
  }
}

// Three values whose sum depends on the order: big + small + small loses both, small + small + big does not.
TEST(CarryOut, RoundsEveryAdditionToTheType) {
  const float big = 1 << 24;
  const Values values{{big}, {1}, {1}};
  EXPECT_EQ(carried_out(star(3, 1), values)[2][0], big);
  const Plan small_ones_first{3,
                              1,
                              {{0, 2, 1, {0, 1}, Action::add},
                               {1, 1, 0, {0, 1}, Action::add},
                               {2, 0, 1, {0, 1}, Action::copy},
                               {2, 0, 2, {0, 1}, Action::copy}}};
  EXPECT_EQ(carried_out(small_ones_first, values)[2][0], big + 2);
}

// What a rank held is told by its number: every contribution can be read from the result.
TEST(CarryOut, EveryGoalIsReachedInNumbers) {
  for (const auto& [name, algorithm, in_chunks] : other_collectives())
    for (int n = 1; n <= 9; ++n)
      for (const int64_t count : {1, n - 1, n, n * n, 5 * n * n + 3, 32 * n * n + 7}) {
        std::vector<std::vector<int64_t>> values(n, std::vector<int64_t>(count));
        const auto held = [](int rank, int64_t i) { return (rank + 1) * 1'000'000 + i; };
        int64_t sum_of_ranks = 0;
        for (int rank = 0; rank < n; ++rank) {
          sum_of_ranks += (rank + 1) * 1'000'000;
          for (int64_t i = 0; i < count; ++i) values[rank][i] = held(rank, i);
        }
        const auto sum = [&](int64_t i) { return sum_of_ranks + n * i; };
        const Plan plan = algorithm(n, count);
        const auto got = carried_out(plan, values, std::plus<int64_t>());
        const auto expect_slice = [&](int rank, const Slice& slice, const auto& want) {
          for (int64_t i = slice.begin; i < slice.end; ++i)
            ASSERT_EQ(got[rank][i], want(i))
                << name << ", " << n << " ranks, rank " << rank << ", element " << i;
        };
        const Slice all{0, count};
        for (int rank = 0; rank < n; ++rank) {
          const Slice own = slice_of(all, n, rank);
          switch (plan.goal) {
            case Goal::allreduce:
              FAIL() << name << " is in the other table";
            case Goal::reduce_scatter:
              expect_slice(rank, own, sum);
              break;
            case Goal::all_gather:
              for (int to = 0; to < n; ++to) expect_slice(to, own, [&](int64_t i) { return held(rank, i); });
              break;
            case Goal::broadcast:
              expect_slice(rank, all, [&](int64_t i) { return held(0, i); });
              break;
            case Goal::reduce:
              if (rank == 0) expect_slice(rank, all, sum);
              break;
            case Goal::all_to_all:
              for (int to = 0; to < n; ++to)
                expect_slice(to, slice_of(own, n, to), [&](int64_t i) { return held(rank, i); });
              break;
          }
        }
      }
}

}  // namespace
}  // namespace lockstep::collective
