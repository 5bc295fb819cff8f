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
  return Network::read(FOUR_GPUS, {});
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
  const Network network = Network::read(EIGHT_GPUS, {{25, 0}, 0});
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

// With so many ranks that plans are not listed: the same formulas.
TEST(Predict, FourThousandRanks) {
  const double alpha = 10e-6, beta = 1 / 25e9;
  const int n = 4096;
  const int64_t count = int64_t{n} * 32 * 100;
  const double bytes = 4.0 * static_cast<double>(count), lap = 2.0 * (n - 1) / n * bytes * beta;
  const Network network = Network::flat({{25, 0}, 10});
  EXPECT_ABOUT(predict_allreduce("ring", n, count, network, 4), 2 * (n - 1) * alpha + lap);
  EXPECT_ABOUT(predict_allreduce("bidirectional_ring", n, count, network, 4), 2 * (n - 1) * alpha + lap);
  EXPECT_ABOUT(predict_allreduce("sharded_star", n, count, network, 4), n * alpha + lap);
  EXPECT_ABOUT(predict_allreduce("two_shot", n, count, network, 4), n * alpha + lap);
  EXPECT_ABOUT(predict_allreduce("star", n, count, network, 4), n * alpha + 2 * (n - 1) * bytes * beta);
  EXPECT_ABOUT(predict_allreduce("halving_doubling", n, count, network, 4), 24 * alpha + lap);
}

// Servers of four devices. The uplink is the tightest lane, unless it has more.
Network servers(int uplink = 3) {
  return Network::parse(fmt::format(R"({{"devices": 4, "nodes": ["nic"], "start_us": 10,
      "links": [{{"from": [0, 1, 2, 3], "to": "nic", "GBps": 12}}],
      "uplinks": [{{"from": "nic", "GBps": {}, "alpha_us": 5}}]}})",
                                    uplink),
                        "s.json", {});
}

TEST(Predict, WhatIsNotListedIsAsIfItWere) {
  for (const Network& network : {servers(), servers(1000), Network::flat({{25, 0}, 10})})
    for (const int n : {36, 64, 128})
      for (const char* name : {"ring", "bidirectional_ring", "sharded_star"}) {
        SCOPED_TRACE(fmt::format("{} over {}", name, n));
        const int64_t count = int64_t{n} * 320;
        EXPECT_ABOUT(predict_allreduce(name, n, count, network, 4),
                     predict_by_rounds(algorithm_named(name)(n, count), network, 4));
      }
}

TEST(Predict, RoundsAndEventsAgreeWhereAllRanksDoTheSame) {
  for (const Network& network : {servers(), Network::flat({{25, 0}, 10})})
    for (const int n : {4, 8, 16})
      for (const char* name : {"ring", "halving_doubling"}) {
        SCOPED_TRACE(fmt::format("{} over {}", name, n));
        const Plan plan = algorithm_named(name)(n, int64_t{n} * 3200);
        const double events = predict_by_events(plan, network, 4),
                     rounds = predict_by_rounds(plan, network, 4);
        // Who has no slow uplink to wait for need not wait for those who have.
        EXPECT_LE(events, rounds * (1 + kNear));
        EXPECT_GE(events, rounds * (network.devices_per_server() == 1 ? 1 - kNear : 0.5));
      }
}

// A ring over servers has one hop through each uplink, each way; a star has all but one server's devices
// there.
TEST(Predict, SharedLinksContend) {
  const double bytes = 4.0 * kCount, uplink = 3e9;
  EXPECT_ABOUT(predict_allreduce("ring", 8, kCount, servers(), 4), 14 * 15e-6 + 2 * 7.0 / 8 * bytes / uplink);
  const double star = predict_allreduce("star", 8, kCount, servers(), 4);
  EXPECT_GT(star, 2 * 4 * bytes / uplink);  // through the hub's uplink, each way
}

TEST(Predict, AdditionsReadAndWriteMemory) {
  const auto with_memory = [](double gigabytes) {
    return Network::parse(
        fmt::format(R"({{"links": [[0, 1], [1, 0]], "GBps": 10, "start_us": 0, "memory_GBps": {}}})",
                    gigabytes),
        "m.json", {});
  };
  // Rank 0 adds what rank 1 has: 2 bytes of memory traffic for each; then rank 1 gets it back.
  EXPECT_ABOUT(predict(star(2, kCount), with_memory(4), 4), 4.0 * kCount * (2 / 4e9 + 1 / 4e9));
  EXPECT_ABOUT(predict(star(2, kCount), with_memory(1000), 4), 4.0 * kCount * (2 / 10e9));
}

TEST(Predict, NothingTakesNoTime) {
  const Network network = Network::flat({});
  for (const std::string& name : algorithm_names()) {
    EXPECT_EQ(predict_allreduce(name, 1, 1000, network, 4), 0) << name;
    EXPECT_EQ(predict_allreduce(name, 64, 0, network, 4), 0) << name;
  }
}

TEST(Flows, ShareALaneFairlyAndLeaveTheRestToOthers) {
  // Lane 0 has 12, lane 1 has 3. Two flows on both lanes get 1.5 each; the third, on lane 0 alone, gets 9.
  const Flow both{1, {{0, 1}, {1, 1}}}, alone{1, {{0, 1}}};
  EXPECT_EQ(fair_rates({&both, &alone, &both}, {12, 3}), (std::vector<double>{1.5, 9, 1.5}));
  // Who uses a lane twice for each byte gets as far as the others, and takes twice of it.
  const Flow twice{1, {{0, 2}}};
  EXPECT_EQ(fair_rates({&twice, &alone}, {12, 3}), (std::vector<double>{4, 4}));
  // And where another lane holds it back, it still takes twice of what it gets.
  const Flow held{1, {{0, 2}, {1, 1}}};
  EXPECT_EQ(fair_rates({&held, &alone}, {12, 3}), (std::vector<double>{3, 6}));
}

TEST(Flows, TimesAddUp) {
  const auto flow = [](double bytes) { return Flow{bytes, {{0, 1}}}; };
  // 6 and 2 bytes share a lane of 1: the short one is through at 4, the long one, alone from then on, at 8.
  EXPECT_DOUBLE_EQ(time_of({{0, {flow(6)}, {}}, {0, {flow(2)}, {}}}, {1}), 8);
  // After each other, each with its alpha.
  EXPECT_DOUBLE_EQ(time_of({{3, {flow(6)}, {}}, {5, {flow(2)}, {0}}}, {1}), 3 + 6 + 5 + 2);
  // A job without flows only waits.
  EXPECT_DOUBLE_EQ(time_of({{3, {}, {}}, {5, {}, {0}}}, {1}), 8);
  EXPECT_DOUBLE_EQ(time_of({}, {1}), 0);
}

TEST(Network, WaysAreTheShortestAndTakeTheirLinksTime) {
  const Network network = servers();
  EXPECT_EQ(network.path(0, 1, false).uses.size(), 2u);
  EXPECT_DOUBLE_EQ(network.path(0, 1, false).alpha, 10e-6);
  const int other = network.node_of(4);  // the first device of the second server
  EXPECT_EQ(network.path(0, other, false).uses.size(), 4u);
  EXPECT_DOUBLE_EQ(network.path(0, other, false).alpha, 15e-6);
}

TEST(Network, ASharedLinkCarriesOneWayAtATime) {
  const auto network = [](const char* shared) {
    return Network::parse(
        fmt::format(R"({{"devices": 2, "links": [{{"from": 0, "to": 1, "GBps": 10{}}}]}})", shared), "l.json",
        {{25, 0}, 0});
  };
  EXPECT_ABOUT(predict(ring(2, kCount), network(""), 4), 4.0 * kCount / 10e9);
  EXPECT_ABOUT(predict(ring(2, kCount), network(R"(, "shared": true)"), 4), 2 * 4.0 * kCount / 10e9);
}

TEST(Network, SaysWhatIsWrong) {
  const auto refusal = [](const std::string& json) {
    return error_of([&] { Network::parse(json, "n.json", {}); });
  };
  const auto of_link = [&](const std::string& link) {
    return refusal(R"({"devices": 2, "nodes": ["switch"], "links": [{"from": [0, 1], "to": "switch"}, )" +
                   link + "]}");
  };
  EXPECT_EQ(of_link(R"({"from": "swich", "to": 0})"),
            "n.json: topology: links[1].from: unknown name 'swich', did you mean 'switch'? (0, 1, switch)");
  EXPECT_EQ(of_link(R"({"from": 2, "to": 0})"), "n.json: topology: links[1].from is 2: use 0 to 1");
  EXPECT_EQ(of_link(R"({"from": [0, -1], "to": "switch"})"),
            "n.json: topology: links[1].from[1] is -1: use 0 to 1");
  EXPECT_EQ(of_link(R"({"from": 0})"), "n.json: topology: links[1].to is missing");
  EXPECT_EQ(of_link(R"({"from": 0, "to": 0})"), "n.json: topology: links[1]: 0 has a link to itself");
  EXPECT_EQ(of_link(R"({"from": "switch", "to": 0})"),
            "n.json: topology: links[1]: switch and 0 have a link already: use count");
  EXPECT_EQ(of_link(R"({"from": 0, "to": 1, "GBps": -16})"),
            "n.json: topology: links[1].GBps is -16: use a number above 0, up to 1e+06");
  EXPECT_EQ(of_link(R"({"from": 0, "to": 1, "GBps": 0})"),
            "n.json: topology: links[1].GBps is 0: use a number above 0, up to 1e+06");
  EXPECT_EQ(of_link(R"({"from": 0, "to": 1, "alpha_us": -1})"),
            "n.json: topology: links[1].alpha_us is -1: use a number from 0, up to 1e+06");
  EXPECT_EQ(of_link(R"({"from": 0, "to": 1, "count": 0})"),
            "n.json: topology: links[1].count is 0: use 1 to 1000");
  EXPECT_EQ(of_link(R"({"from": 0, "to": 1, "shared": 1})"),
            "n.json: topology: links[1].shared is 1: use true, or leave it out");
  EXPECT_EQ(of_link(R"({"from": 0, "to": 1, "GBs": 1})"),
            "n.json: topology: links[1]: unknown name 'GBs', did you mean 'GBps'? (from, to, GBps, alpha_us, "
            "count, shared)");
  EXPECT_EQ(of_link("7"), "n.json: topology: links[1] is 7: use an object");
  EXPECT_EQ(refusal(R"({"links": []})"), "n.json: topology: devices is missing: how many there are");
  EXPECT_EQ(refusal(R"({"devices": 3, "links": [{"from": 0, "to": 1}]})"),
            "n.json: topology: no links lead from 0 to 2");
  EXPECT_EQ(refusal(R"({"devices": 2, "nodes": ["1"], "links": []})"),
            "n.json: topology: nodes[0]: there is a '1' already");
  EXPECT_EQ(refusal(R"({"devices": 2, "links": [{"from": 0, "to": 1}], "uplinks": []})"),
            "n.json: topology: uplinks is empty: use a list of links");
  EXPECT_EQ(
      refusal(R"({"devices": 2, "links": [[0, 1], [1, 0]]})"),
      "n.json: topology: devices: a matrix of links has rows for devices alone: leave it out, or list the "
      "links");
  EXPECT_EQ(refusal(R"({"links": [[0, 1], [1, 0]], "memory_GBps": "fast"})"),
            "n.json: topology: memory_GBps is \"fast\": use a number above 0, up to 1e+06");
  EXPECT_EQ(refusal(R"({"links": [[0, 1], [2, 0]]})"),
            "n.json: topology: links[0][1] is 1, but links[1][0] is 2: a link leads both ways");
  EXPECT_TRUE(refusal("{").starts_with("n.json: is no JSON: "));
  EXPECT_EQ(error_of([] { predict_allreduce("ring", 6, 100, servers(), 4); }),
            "devices is 6: the topology's servers have 4 devices each: use a multiple");
  EXPECT_EQ(error_of([] { predict_allreduce("ring", 5, 100, four_gpus(), 4); }),
            "devices is 5: the topology has 4 devices, and no uplinks to further servers");
}

}  // namespace
}  // namespace lockstep::collective
