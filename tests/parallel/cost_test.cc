// What plans would take: the chapter's numbers, closed formulas, and how flows share lanes.
#include "parallel/collective/cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/collective/flows.h"
#include "tests/error_of.h"

namespace lockstep::collective {
namespace {

constexpr int64_t kCount = 40'000'000;  // 160 MB of floats
constexpr double kMilli = 1e-3;
// Slices differ by 32 floats at most, and times are sums of some hundred roundings.
constexpr double kNear = 1e-5;

#define EXPECT_ABOUT(value, wanted) EXPECT_NEAR(value, wanted, (wanted) * kNear)

// Four GPUs and a CPU on one PCIe switch.
Network four_gpus() {
  return Network::read(FOUR_GPUS, {{16, 0}, 0});
}

TEST(Predict, TheChaptersFourGpus) {
  const Network network = four_gpus();
  EXPECT_ABOUT(predict(star(4, kCount), network, 4), 60 * kMilli);
  EXPECT_ABOUT(predict(sharded_star(4, kCount), network, 4), 15 * kMilli);
  EXPECT_ABOUT(predict(ring(4, kCount), network, 4), 15 * kMilli);
  // Through the CPU: the hub has nothing of its own.
  const std::vector<int> places{network.node_named("cpu", ""), 0, 1, 2, 3};
  EXPECT_ABOUT(predict(star(5, kCount), network, 4, places), 80 * kMilli);
}

TEST(Predict, TheChaptersEightGpus) {
  const Network network = Network::read(EIGHT_GPUS, {{18, 0}, 0});
  const std::vector<Ring> rings = disjoint_rings(*network.topology());
  // Each of three rings carries a third, one way only: 2 * 7/8 * 160 MB / (3 * 18 GB/s); the chapter says
  // "about 6 ms", without the 7/8.
  EXPECT_ABOUT(predict(collective::rings(rings, kCount, Directions::one), network, 4), 5.1852 * kMilli);
  EXPECT_ABOUT(predict(collective::rings(rings, kCount), network, 4), 5.1852 / 2 * kMilli);
}

// docs/allreduce.md: one port per device, start and bytes.
TEST(Predict, TheTablesFormulas) {
  const double alpha = 10e-6, beta = 1 / 25e9, bytes = 4.0 * kCount;
  const Network network = Network::flat({{25, 0}, 10});
  for (const int n : {2, 3, 8, 16}) {
    SCOPED_TRACE(n);
    const double lap = 2.0 * (n - 1) / n * bytes * beta;
    EXPECT_ABOUT(predict_allreduce("star", n, kCount, network, 4), n * alpha + 2 * (n - 1) * bytes * beta);
    EXPECT_ABOUT(predict_allreduce("sharded_star", n, kCount, network, 4), n * alpha + lap);
    EXPECT_ABOUT(predict_allreduce("ring", n, kCount, network, 4), 2 * (n - 1) * alpha + lap);
    // Over two ranks both halves come from the same one, and follow each other on its stream.
    EXPECT_ABOUT(predict_allreduce("bidirectional_ring", n, kCount, network, 4),
                 (n == 2 ? 4 : 2 * (n - 1)) * alpha + lap);
    EXPECT_ABOUT(predict_allreduce("one_shot", n, kCount, network, 4), alpha + (n - 1) * bytes * beta);
    EXPECT_ABOUT(predict_allreduce("two_shot", n, kCount, network, 4), alpha + lap);
  }
}

}  // namespace
}  // namespace lockstep::collective
