// Rings found in topologies: that they pass through all ranks and share no link, how many there are, and the
// chapter's example. And what is no topology.
#include "parallel/collective/topology.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/error_of.h"
#include "tests/parallel/violation.h"

namespace lockstep::collective {
namespace {

Topology without_links(int n) {
  return {n, std::vector<std::vector<int>>(static_cast<size_t>(n), std::vector<int>(static_cast<size_t>(n)))};
}

void link(Topology& topology, int a, int b, int links = 1) {
  topology.links[a][b] += links;
  topology.links[b][a] += links;
}

Topology complete(int n, int links = 1) {
  Topology topology = without_links(n);
  for (int a = 0; a < n; ++a)
    for (int b = 0; b < a; ++b) link(topology, a, b, links);
  return topology;
}

// Empty where the rings pass through all ranks and share no link.
std::string fault_of(const std::vector<Ring>& rings, Topology left) {
  for (const Ring& ring : rings) {
    Ring sorted = ring;
    std::ranges::sort(sorted);
    for (int i = 0; i < left.ranks; ++i)
      if (static_cast<int>(ring.size()) != left.ranks || sorted[i] != i)
        return fmt::format("{} leaves a rank out", fmt::join(ring, "-"));
    for (int i = 0; i < (left.ranks == 2 ? 1 : left.ranks); ++i) {
      const int a = ring[i], b = ring[(i + 1) % left.ranks];
      if (left.links[a][b] == 0) return fmt::format("{}: no link {}-{} is left", fmt::join(ring, "-"), a, b);
      link(left, a, b, -1);
    }
  }
  return "";
}

TEST(Topology, TheChaptersEightGpusHaveItsRings) {
  const Topology eight = read_topology(EIGHT_GPUS);
  const std::vector<Ring> rings = disjoint_rings(eight);
  const Ring doubled{0, 1, 2, 3, 4, 5, 6, 7}, single{0, 3, 5, 2, 4, 7, 1, 6};  // the chapter counts from 1
  EXPECT_EQ(rings, (std::vector<Ring>{doubled, doubled, single}));
  EXPECT_EQ(violation(collective::rings(rings, 1000003)), "");
}

TEST(Topology, CompleteGraphsHaveARingForEveryTwoLinksOfARank) {
  for (int n = 3; n <= 16; ++n)
    for (const int links : {1, 2}) {
      const Topology topology = complete(n, links);
      const std::vector<Ring> rings = disjoint_rings(topology);
      EXPECT_EQ(fault_of(rings, topology), "") << n;
      EXPECT_EQ(rings.size(), static_cast<size_t>(links * (n - 1) / 2))
          << n << " ranks, " << links << " links";
    }
}

TEST(Topology, TwoRanksHaveARingForEveryLink) {
  EXPECT_EQ(disjoint_rings(complete(2, 3)), (std::vector<Ring>(3, Ring{0, 1})));
  EXPECT_EQ(disjoint_rings(without_links(1)), (std::vector<Ring>{{0}}));
}

TEST(Topology, AHypercubeAndATorusHaveTwoRings) {
  Topology cube = without_links(16), torus = without_links(12);
  for (int a = 0; a < 16; ++a)
    for (int bit = 1; bit < 16; bit *= 2)
      if ((a & bit) == 0) link(cube, a, a | bit);
  for (int x = 0; x < 3; ++x)
    for (int y = 0; y < 4; ++y) {
      link(torus, 4 * x + y, 4 * ((x + 1) % 3) + y);
      link(torus, 4 * x + y, 4 * x + (y + 1) % 4);
    }
  for (const Topology& topology : {cube, torus}) {
    const std::vector<Ring> rings = disjoint_rings(topology);
    EXPECT_EQ(rings.size(), 2u);
    EXPECT_EQ(fault_of(rings, topology), "");
  }
}

// A random number of rings, laid at random: at least as many are found.
TEST(Topology, FindsAsManyRingsAsWereLaid) {
  const unsigned seed = 11;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i) {
    const int n = 3 + static_cast<int>(random() % 7), laid = 1 + static_cast<int>(random() % 3);
    Topology topology = without_links(n);
    for (int ring = 0; ring < laid; ++ring) {
      Ring order(static_cast<size_t>(n));
      for (int rank = 0; rank < n; ++rank) order[rank] = rank;
      std::ranges::shuffle(order, random);
      for (int place = 0; place < n; ++place) link(topology, order[place], order[(place + 1) % n]);
    }
    const std::vector<Ring> rings = disjoint_rings(topology);
    EXPECT_EQ(rings.size(), static_cast<size_t>(laid)) << "topology " << i << ", " << n << " ranks";
    EXPECT_EQ(fault_of(rings, topology), "");
    EXPECT_EQ(violation(collective::rings(rings, 1 + static_cast<int>(random() % 500))), "");
  }
}

TEST(Topology, ThisMachineHasALinkWhereTwoDevicesReachEachOther) {
  int devices = 0, access = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices > 1) {
    ASSERT_EQ(cudaDeviceCanAccessPeer(&access, 0, 1), cudaSuccess);
  }
  if (devices > 1 && access == 0) {
    EXPECT_EQ(error_of([] { this_machine(); }), "topology: no links lead from rank 0 to rank 1");
  } else {
    const Topology topology = this_machine();
    EXPECT_EQ(topology.ranks, devices);
    EXPECT_EQ(violation(collective::rings(disjoint_rings(topology), 1001)), "");
  }
}

TEST(Topology, SaysWhatIsWrong) {
  const auto refusal = [](const std::string& json) {
    return error_of([&] { disjoint_rings(parse_topology(json, "t.json")); });
  };
  EXPECT_EQ(refusal(R"({"links": [[0, 1], [1]]})"),
            "t.json: topology: links[1] has 1 numbers, but there are 2 ranks");
  EXPECT_EQ(refusal(R"({"links": [[0, -1], [-1, 0]]})"),
            "t.json: topology: links[0][1] is -1: use 0 to 1000");
  EXPECT_EQ(refusal(R"({"links": [[0, 1], [2, 0]]})"),
            "t.json: topology: links[0][1] is 1, but links[1][0] is 2: a link leads both ways");
  EXPECT_EQ(refusal(R"({"links": [[1]]})"), "t.json: topology: rank 0 has links to itself");
  EXPECT_EQ(refusal(R"({"links": [[0, 1.5], [1.5, 0]]})"),
            "t.json: topology: links[0][1] is 1.5: use a whole number");
  EXPECT_EQ(refusal(R"({"links": [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]})"),
            "t.json: topology: no links lead from rank 0 to rank 2");
  EXPECT_EQ(refusal(R"({"links": [[0, 1, 0], [1, 0, 1], [0, 1, 0]]})"),
            "topology: no ring: it needs two links of rank 0, which has 1");
  EXPECT_EQ(refusal(R"({"links": []})"), "t.json: plan: 0 ranks: there may be 1 to 4096");
  EXPECT_EQ(refusal(R"({"lines": []})"),
            "t.json: topology: unknown name 'lines', did you mean 'links'? (links, GBps, alpha_us, start_us, "
            "port_GBps, memory_GBps, uplinks)");
  EXPECT_TRUE(refusal("links").starts_with("t.json: is no JSON: ")) << refusal("links");
  EXPECT_EQ(refusal("[]"), "t.json: topology: this is no object");
  EXPECT_EQ(refusal("{}"), "t.json: topology: links is missing");
  EXPECT_EQ(refusal(R"({"links": 5})"), "t.json: topology: links is 5: use a list of rows");
  EXPECT_EQ(refusal(R"({"links": [5]})"), "t.json: topology: links[0] is 5: use a list of numbers");
  EXPECT_EQ(refusal(R"({"links": [[{}]]})"),
            "t.json: topology: links[0][0] is an object: use a whole number");
  EXPECT_EQ(error_of([] { read_topology("/nowhere/t.json"); }),
            "/nowhere/t.json: cannot be read: No such file or directory");
  // Two triangles that share rank 2: connected, but no ring passes through all.
  EXPECT_EQ(
      refusal(
          R"({"links": [[0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 1], [0, 0, 1, 0, 1], [0, 0, 1, 1, 0]]})"),
      "topology: no ring through all ranks was found");
}

}  // namespace
}  // namespace lockstep::collective
