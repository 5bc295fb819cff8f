// The schedule of every algorithm: whatever touches the same elements stays in the plan's order by streams
// and events alone, and no event is waited for in vain.
#include "parallel/collective/schedule.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::collective {
namespace {

bool overlap(const Slice& a, const Slice& b) {
  return a.begin < b.end && b.begin < a.end;
}

struct Use {
  int rank;
  Slice slice;
  bool writes;
};

std::vector<Use> uses_of(const Task& task, const Plan& plan) {
  const Slice all{0, plan.count};
  if (task.kind == Task::Kind::begin || task.kind == Task::Kind::end) return {{task.rank, all, true}};
  const Transfer& t = task.transfer;
  if (task.kind == Task::Kind::transfer) return {{t.source, t.slice, false}, {t.destination, t.slice, true}};
  std::vector<Use> uses;
  for (int rank = 0; rank < plan.ranks; ++rank) uses.push_back({rank, t.slice, true});
  return uses;
}

bool conflict(const Task& a, const Task& b, const Plan& plan) {
  for (const Use& x : uses_of(a, plan))
    for (const Use& y : uses_of(b, plan))
      if (x.rank == y.rank && (x.writes || y.writes) && overlap(x.slice, y.slice)) return true;
  return false;
}

// By task: those that are done before it begins, by the order of its stream and by what it waits for, with
// the wait `left_out` forgotten.
std::vector<std::vector<bool>> done_before(const std::vector<Task>& tasks, std::pair<int, int> left_out) {
  std::vector<std::vector<bool>> done(tasks.size(), std::vector<bool>(tasks.size()));
  std::map<int, int> last;  // by stream
  for (size_t t = 0; t < tasks.size(); ++t) {
    std::vector<int> direct;
    for (const int other : tasks[t].after)
      if (std::pair(static_cast<int>(t), other) != left_out) direct.push_back(other);
    if (last.contains(tasks[t].stream)) direct.push_back(last[tasks[t].stream]);
    last[tasks[t].stream] = static_cast<int>(t);
    for (const int other : direct) {
      done[t][other] = true;
      for (size_t i = 0; i < tasks.size(); ++i)
        if (done[other][i]) done[t][i] = true;
    }
  }
  return done;
}

// "" where every conflict is ordered.
std::string first_unordered(const std::vector<Task>& tasks, const Plan& plan, std::pair<int, int> left_out) {
  const auto done = done_before(tasks, left_out);
  for (size_t t = 0; t < tasks.size(); ++t)
    for (size_t other = 0; other < t; ++other)
      if (!done[t][other] && conflict(tasks[t], tasks[other], plan))
        return "tasks " + std::to_string(other) + " and " + std::to_string(t);
  return "";
}

class ScheduleTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, ScheduleTest, testing::ValuesIn(algorithm_names()),
                         [](const auto& test) { return test.param; });

TEST_P(ScheduleTest, OrdersWhateverTouchesTheSameElements) {
  for (const int ranks : {1, 2, 3, 4, 5, 8, 9})
    for (const int64_t count : {1, ranks - 1, 1000}) {
      const Plan plan = algorithm_named(GetParam())(ranks, count);
      const std::vector<Task> tasks = schedule(plan).tasks;
      EXPECT_EQ(first_unordered(tasks, plan, {-1, -1}), "") << ranks << " ranks, " << count << " elements";
    }
}

TEST_P(ScheduleTest, WaitsForNothingInVain) {
  for (const int ranks : {2, 3, 4, 5}) {
    const Plan plan = algorithm_named(GetParam())(ranks, 100);
    const std::vector<Task> tasks = schedule(plan).tasks;
    for (size_t t = 0; t < tasks.size(); ++t)
      for (const int other : tasks[t].after) {
        EXPECT_TRUE(tasks[other].awaited);
        EXPECT_NE(first_unordered(tasks, plan, {static_cast<int>(t), other}), "")
            << ranks << " ranks: task " << t << " need not wait for " << other;
      }
  }
}

TEST_P(ScheduleTest, KeepsEveryTransferOnAStreamOfItsDestination) {
  const Plan plan = algorithm_named(GetParam())(7, 1000);
  const Schedule made = schedule(plan);
  size_t transfers = 0;
  for (const Task& task : made.tasks) {
    EXPECT_EQ(made.streams[task.stream], task.rank);
    if (task.kind != Task::Kind::transfer) continue;
    ++transfers;
    EXPECT_EQ(task.rank, task.transfer.destination);
  }
  EXPECT_EQ(transfers, plan.fused ? 0 : plan.transfers.size());
}

}  // namespace
}  // namespace lockstep::collective
