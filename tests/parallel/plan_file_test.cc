// Plans as files: what is written is read again, orders given by rounds or by what comes before, and what is
// no plan.
#include "parallel/collective/plan_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/error_of.h"
#include "tests/parallel/violation.h"

namespace lockstep::collective {
namespace {

TEST(PlanFile, WhatIsWrittenIsReadAgain) {
  std::vector<NamedAlgorithm> all = algorithms();
  all.insert(all.end(), other_collectives().begin(), other_collectives().end());
  for (const auto& [name, algorithm, in_chunks] : all)
    for (const int n : {1, 2, 5, 8}) {
      const Plan plan = algorithm(n, 101), again = parse_plan(plan_as_json(plan), "plan.json");
      EXPECT_EQ(again.ranks, n) << name;
      EXPECT_EQ(again.count, 101) << name;
      EXPECT_EQ(again.goal, plan.goal) << name;
      EXPECT_EQ(again.root, plan.root) << name;
      EXPECT_EQ(again.transfers, plan.transfers) << name;
    }
}

TEST(PlanFile, AnyOrderOfRoundsInTheFileWillDo) {
  const Plan plan = parse_plan(R"({"ranks": 2, "count": 8, "transfers": [
    {"round": 4, "from": 0, "to": 1, "slice": [0, 8], "action": "copy"},
    {"round": 1, "from": 1, "to": 0, "slice": [0, 8], "action": "add"}]})",
                               "plan.json");
  EXPECT_EQ(violation(plan), "");
  EXPECT_EQ(to_string(plan.transfers[0]), "round 1: 1 -> 0 add [0, 8)");
}

// A chain of three: up, and down again, told by what comes before what.
std::string chain(const std::string& second, const std::string& third) {
  return fmt::format(R"({{"ranks": 3, "count": 8, "transfers": [
    {{"from": 0, "to": 1, "slice": [0, 8], "action": "copy", "after": [2]}},
    {{"from": 2, "to": 1, "slice": [0, 8], "action": "add"{}}},
    {{"from": 1, "to": 0, "slice": [0, 8], "action": "add"{}}},
    {{"from": 1, "to": 2, "slice": [0, 8], "action": "copy", "after": [0]}}]}})",
                     second, third);
}

TEST(PlanFile, RoundsFollowFromWhatComesBefore) {
  const Plan plan = parse_plan(chain("", ", \"after\": [1]"), "plan.json");
  EXPECT_EQ(violation(plan), "");
  std::string all;
  for (const Transfer& t : plan.transfers) all += to_string(t) + "; ";
  EXPECT_EQ(all,
            "round 0: 2 -> 1 add [0, 8); round 1: 1 -> 0 add [0, 8); round 2: 0 -> 1 copy [0, 8); "
            "round 3: 1 -> 2 copy [0, 8); ");
}

TEST(PlanFile, NamesACircle) {
  EXPECT_EQ(error_of([] { parse_plan(chain(", \"after\": [3]", ", \"after\": [1]"), "plan.json"); }),
            "plan.json: a circle: transfers[0] waits for transfers[2] waits for transfers[1] waits for "
            "transfers[3] waits for transfers[0]");
  EXPECT_EQ(error_of([] { parse_plan(chain(", \"after\": [1]", ""), "plan.json"); }),
            "plan.json: a circle: transfers[1] waits for transfers[1]");
}

TEST(PlanFile, LongChainsOfTransfersNeedNoStack) {
  std::string file = R"({"ranks": 2, "count": 1, "transfers": [)";
  constexpr int kTransfers = 100'000;
  for (int i = 0; i < kTransfers; ++i)
    file += fmt::format(R"({}{{"from": 0, "to": 1, "slice": [0, 1], "action": "copy", "after": [{}]}})",
                        i == 0 ? "" : ",", i + 1 < kTransfers ? std::to_string(i + 1) : "");
  EXPECT_EQ(parse_plan(file + "]}", "plan.json").transfers.back().round, kTransfers - 1);
}

std::string refusal(const std::string& transfers, const std::string& before = R"("ranks": 4, "count": 8)") {
  return error_of(
      [&] { parse_plan(fmt::format(R"({{{}, "transfers": {}}})", before, transfers), "p.json"); });
}

std::string refusal_of_second(const std::string& keys) {
  return refusal(R"([{"round": 0, "from": 0, "to": 1, "slice": [0, 8], "action": "add"}, {)" + keys + "}]");
}

TEST(PlanFile, SaysWhatIsWrong) {
  EXPECT_EQ(refusal_of_second(R"("round": 0, "from": 0, "to": 4, "slice": [0, 8], "action": "add")"),
            "p.json: transfers[1]: to is 4: use 0 to 3");
  EXPECT_EQ(refusal_of_second(R"("round": -1, "from": 0, "to": 3, "slice": [0, 8], "action": "add")"),
            "p.json: transfers[1]: round is -1: use 0 to 2147483646");
  EXPECT_EQ(refusal_of_second(
                R"("round": 18446744073709551615, "from": 0, "to": 3, "slice": [0, 8], "action": "add")"),
            "p.json: transfers[1]: round is 18446744073709551615: use 0 to 2147483646");
  EXPECT_EQ(refusal_of_second(R"("round": 0, "from": 3, "to": 3, "slice": [0, 8], "action": "add")"),
            "p.json: transfers[1] sends from rank 3 to itself");
  EXPECT_EQ(refusal_of_second(R"("round": 0, "from": "a", "to": 3, "slice": [0, 8], "action": "add")"),
            "p.json: transfers[1]: from is \"a\": use a whole number");
  EXPECT_EQ(refusal_of_second(R"("round": 0, "from": 0, "to": 3, "slice": [0, 9], "action": "add")"),
            "p.json: transfers[1]: slice is 9: use 0 to 8");
  EXPECT_EQ(refusal_of_second(R"("round": 0, "from": 0, "to": 3, "slice": [5, 5], "action": "add")"),
            "p.json: transfers[1]: slice is [5, 5]: it is empty");
  EXPECT_EQ(refusal_of_second(R"("round": 0, "from": 0, "to": 3, "slice": 5, "action": "add")"),
            "p.json: transfers[1]: slice is 5: use [first element, one past the last]");
  EXPECT_EQ(refusal_of_second(R"("round": 0, "from": 0, "to": 3, "slice": [0, 8], "action": "sum")"),
            "p.json: transfers[1]: action: unknown name 'sum': use one of these: (add, copy)");
  EXPECT_EQ(refusal_of_second(R"("round": 0, "form": 0, "to": 3, "slice": [0, 8], "action": "add")"),
            "p.json: transfers[1]: unknown name 'form', did you mean 'from'? (round, after, from, to, slice, "
            "action)");
  EXPECT_EQ(refusal_of_second(R"("round": 0, "to": 3, "slice": [0, 8], "action": "add")"),
            "p.json: transfers[1]: from is missing");
  EXPECT_EQ(refusal_of_second(R"("after": [0], "from": 0, "to": 3, "slice": [0, 8], "action": "add")"),
            "p.json: transfers[1] has \"after\", but others have \"round\": use one of the two");
  EXPECT_EQ(refusal(R"([{"after": [1], "from": 0, "to": 3, "slice": [0, 8], "action": "add"}])"),
            "p.json: transfers[0]: after is 1: use 0 to 0");
  EXPECT_EQ(refusal_of_second(R"("after": 0, "from": 0, "to": 3, "slice": [0, 8], "action": "add")"),
            "p.json: transfers[1] has \"after\", but others have \"round\": use one of the two");
  EXPECT_EQ(refusal(R"([{"after": 0, "from": 0, "to": 3, "slice": [0, 8], "action": "add"}])"),
            "p.json: transfers[0]: after is 0: use a list of transfers");
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_EQ(refusal("[]", R"("count": 8, "ranks": )" + deep), "p.json: ranks is a list: use a whole number");
  EXPECT_EQ(refusal("[7]"), "p.json: transfers[0] is no object");
  EXPECT_EQ(refusal("7"), "p.json: transfers is no list");
  EXPECT_EQ(refusal("[]", R"("ranks": 4)"), "p.json: count is missing");
  EXPECT_EQ(refusal("[]", R"("ranks": 4, "count": -8)"), "p.json: count is -8: use 0 to 281474976710656");
  EXPECT_EQ(refusal("[]", R"("ranks": 5000, "count": 8)"), "p.json: ranks is 5000: use 1 to 4096");
  EXPECT_EQ(refusal("[]", R"("ranks": 4, "count": 8, "goal": "alreduce")"),
            "p.json: goal: unknown name 'alreduce', did you mean 'allreduce'? (allreduce, reduce_scatter, "
            "all_gather, broadcast, reduce, all_to_all)");
  EXPECT_EQ(refusal("[]", R"("ranks": 4, "count": 8, "root": 0)"), "p.json: root: allreduce has none");
  EXPECT_EQ(refusal("[]", R"("ranks": 4, "count": 8, "goal": "reduce", "root": 4)"),
            "p.json: root is 4: use 0 to 3");
  EXPECT_EQ(error_of([] { parse_plan("[]", "p.json"); }), "p.json: this is no object");
  const std::string no_json = error_of([] { parse_plan("ranks", "p.json"); });
  EXPECT_TRUE(no_json.starts_with("p.json: is no JSON: ")) << no_json;
  EXPECT_EQ(error_of([] { read_plan("/nowhere/p.json"); }),
            "/nowhere/p.json: cannot be read: No such file or directory");
  EXPECT_EQ(error_of([] { read_plan("/tmp"); }), "/tmp: cannot be read: it is a folder");
}

}  // namespace
}  // namespace lockstep::collective
