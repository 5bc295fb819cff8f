// check_plan as its users see it: plans that are right, and what it says of those that are not.
#include <gtest/gtest.h>

#include <fstream>

#include "parallel/collective/plan_file.h"
#include "tests/apps/program.h"
#include "tests/nn/idx_files.h"

namespace lockstep::apps {
namespace {

class CheckPlan : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  Outcome check(const std::string& text) const {
    std::ofstream(path("plan.json")) << text;
    return run_program({CHECK_PLAN, path("plan.json")});
  }

  // The one line of a refusal, without the program's name and the file's folder.
  std::string refusal(const std::string& text) const {
    const Outcome outcome = check(text);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    const std::string before = "check_plan: " + path("");
    EXPECT_TRUE(outcome.error.starts_with(before)) << outcome.error;
    return outcome.error.substr(std::min(before.size(), outcome.error.size()));
  }

 private:
  data::TemporaryFolder folder_;
};

TEST_F(CheckPlan, ProvesEveryPlanOfTheTables) {
  using collective::plan_as_json;
  for (const auto* table : {&collective::algorithms(), &collective::other_collectives()})
    for (const auto& [name, plan, in_chunks] : *table) {
      const Outcome outcome = check(plan_as_json(plan(5, 103)));
      EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
      EXPECT_NE(outcome.out.find("plan.json: right: "), std::string::npos) << name;
      EXPECT_NE(outcome.out.find(" of 103 elements over 5 ranks: "), std::string::npos) << name;
      EXPECT_EQ(outcome.error, "");
    }
}

TEST_F(CheckPlan, TellsWhatAPlanCosts) {
  const Outcome outcome = check(collective::plan_as_json(collective::ring(4, 8)));
  EXPECT_EQ(outcome.out,
            path("plan.json") +
                ": right: every rank ends with the sum over all ranks\n"
                "allreduce of 8 elements over 4 ranks: 24 transfers in 6 rounds; a rank sends 12 "
                "elements at most, and receives 12\n");
}

TEST_F(CheckPlan, SaysWhatIsWrongInOneLine) {
  EXPECT_EQ(refusal(R"({"ranks": 3, "count": 100, "transfers": [
              {"round": 0, "from": 1, "to": 0, "slice": [0, 100], "action": "copy"},
              {"round": 3, "from": 0, "to": 2, "slice": [0, 50], "action": "add"},
              {"round": 5, "from": 1, "to": 2, "slice": [25, 75], "action": "add"}]})"),
            "plan.json: rank 2 adds slice [25, 50) of rank 1 twice, in rounds 3 and 5: round 3: 0 -> 2 add "
            "[0, 50), "
            "round 5: 1 -> 2 add [25, 75)\n");
  EXPECT_EQ(refusal(R"({"ranks": 2, "count": 8, "transfers": [
              {"from": 0, "to": 2, "slice": [0, 8], "action": "add"}]})"),
            "plan.json: transfers[0]: to is 2: use 0 to 1\n");
  EXPECT_EQ(refusal(R"({"ranks": 2, "count": 8, "transfers": [
              {"from": 0, "to": 1, "slice": [0, 8], "action": "add", "after": [1]},
              {"from": 1, "to": 0, "slice": [0, 8], "action": "copy", "after": [0]}]})"),
            "plan.json: a circle: transfers[0] waits for transfers[1] waits for transfers[0]\n");
  EXPECT_EQ(
      refusal(R"({"ranks": 2, "count": 8, "transfers": []})"),
      "plan.json: rank 0 ends without the contribution of rank 1 to elements [0, 8): no transfers connect "
      "them\n");
  EXPECT_TRUE(refusal("ring").starts_with("plan.json: is no JSON: "));
}

TEST_F(CheckPlan, WithoutAFileItSaysSo) {
  const Outcome outcome = run_program({CHECK_PLAN, path("none.json")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.error,
            "check_plan: " + path("none.json") + ": cannot be read: No such file or directory\n");
  EXPECT_NE(run_program({CHECK_PLAN}).exit_code, 0);
}

}  // namespace
}  // namespace lockstep::apps
