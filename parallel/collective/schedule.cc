#include "parallel/collective/schedule.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <utility>

namespace lockstep::collective {
namespace {

// What a task does to the elements of a rank's buffer.
struct Access {
  int rank;
  Slice slice;
  bool writes;
};

std::vector<Access> accesses_of(const Task& task, const Plan& plan) {
  switch (task.kind) {
    case Task::Kind::begin:
    case Task::Kind::end:
      return {{task.rank, {0, plan.count}, true}};
    case Task::Kind::transfer:
      return {{task.transfer.source, task.transfer.slice, false},
              {task.transfer.destination, task.transfer.slice, true}};
    case Task::Kind::combine:
      break;
  }
  std::vector<Access> all;
  for (int rank = 0; rank < plan.ranks; ++rank) all.push_back({rank, task.transfer.slice, true});
  return all;
}

// Who touched the elements of all buffers last.
class History {
 public:
  explicit History(const Plan& plan) {
    std::set<int64_t> cuts{0, plan.count};
    for (const Transfer& t : plan.transfers) cuts.insert({t.slice.begin, t.slice.end});
    cuts_.assign(cuts.begin(), cuts.end());
    pieces_.assign(plan.ranks, std::vector<Piece>(cuts_.size() - 1));
  }

  // The tasks before which `accesses` must not happen: writers of what is read, users of what is written.
  std::set<int> conflicts(const std::vector<Access>& accesses) const {
    std::set<int> found;
    for (const Access& access : accesses)
      for (size_t p = piece_at(access.slice.begin); p < piece_at(access.slice.end); ++p) {
        const Piece& piece = pieces_[access.rank][p];
        if (piece.writer >= 0) found.insert(piece.writer);
        if (access.writes) found.insert(piece.readers.begin(), piece.readers.end());
      }
    return found;
  }

  void note(int task, const std::vector<Access>& accesses) {
    for (const Access& access : accesses)
      for (size_t p = piece_at(access.slice.begin); p < piece_at(access.slice.end); ++p) {
        Piece& piece = pieces_[access.rank][p];
        if (access.writes)
          piece = {task, {}};
        else
          piece.readers.push_back(task);
      }
  }

 private:
  struct Piece {
    int writer = -1;
    std::vector<int> readers;  // since the writer
  };
  size_t piece_at(int64_t element) const {
    return std::lower_bound(cuts_.begin(), cuts_.end(), element) - cuts_.begin();
  }
  std::vector<int64_t> cuts_;  // no access begins or ends between two neighbours
  std::vector<std::vector<Piece>> pieces_;
};

std::vector<Task> tasks_of(const Plan& plan) {
  std::vector<Task> tasks;
  const Transfer none{0, 0, 0, {0, 0}, Action::copy};
  for (int rank = 0; rank < plan.ranks; ++rank) tasks.push_back({Task::Kind::begin, rank, none});
  if (plan.fused) {
    for (const Transfer& t :
         plan.transfers) {  // a slice is added up in one rank: its first addition stands for all
      const bool known = std::any_of(tasks.begin() + plan.ranks, tasks.end(),
                                     [&t](const Task& task) { return task.transfer.slice == t.slice; });
      if (!known) tasks.push_back({Task::Kind::combine, t.destination, t});
    }
  } else {
    for (const Transfer& t : plan.transfers) tasks.push_back({Task::Kind::transfer, t.destination, t});
  }
  for (int rank = 0; rank < plan.ranks; ++rank) tasks.push_back({Task::Kind::end, rank, none});
  return tasks;
}

class Scheduler {
 public:
  explicit Scheduler(const Plan& plan) : history_(plan), tasks_(tasks_of(plan)) {
    for (int rank = 0; rank < plan.ranks; ++rank) streams_.push_back(rank);
    for (size_t t = 0; t < tasks_.size(); ++t) {
      const std::vector<Access> accesses = accesses_of(tasks_[t], plan);
      const std::set<int> conflicts = history_.conflicts(accesses);
      tasks_[t].stream = stream_of(tasks_[t], conflicts);
      place(static_cast<int>(t), conflicts);
      history_.note(static_cast<int>(t), accesses);
    }
  }
  Schedule result() && { return {std::move(streams_), std::move(tasks_)}; }

 private:
  // By stream: the last task on it that is known to be done; -1 for none.
  using Clock = std::vector<int>;

  // A rank's additions follow each other on one stream where they have to anyway. Whatever else comes into a
  // rank from one source has a stream; that of the first source is the rank's own.
  int stream_of(const Task& task, const std::set<int>& conflicts) {
    if (task.kind != Task::Kind::transfer) return task.rank;
    if (task.transfer.action == Action::add) {
      const auto before = std::find_if(conflicts.rbegin(), conflicts.rend(), [&](int other) {
        return tasks_[other].kind == Task::Kind::transfer && tasks_[other].rank == task.rank &&
               tasks_[other].transfer.action == Action::add;
      });
      if (before != conflicts.rend()) return tasks_[*before].stream;
    }
    const std::pair<int, int> link{task.transfer.source, task.rank};
    if (const auto known = links_.find(link); known != links_.end()) return known->second;
    const bool first = std::none_of(links_.begin(), links_.end(),
                                    [&](const auto& other) { return other.first.second == task.rank; });
    int stream = task.rank;
    if (!first) {
      stream = static_cast<int>(streams_.size());
      streams_.push_back(task.rank);
    }
    links_.emplace(link, stream);
    return stream;
  }

  // Has task t wait for those of its conflicts that nothing it follows has waited for.
  void place(int t, const std::set<int>& conflicts) {
    Task& task = tasks_[t];
    if (clock_of_stream_.size() < streams_.size()) clock_of_stream_.resize(streams_.size());
    Clock& clock = clock_of_stream_[task.stream];
    clock.resize(streams_.size(), -1);
    for (const int other : std::views::reverse(conflicts)) {  // the latest know most
      Task& before = tasks_[other];
      if (before.stream == task.stream || clock[before.stream] >= other) continue;
      task.after.push_back(other);
      before.awaited = true;
      const Clock& known = done_[other];
      for (size_t s = 0; s < known.size(); ++s) clock[s] = std::max(clock[s], known[s]);
    }
    clock[task.stream] = t;
    done_.push_back(clock);
  }

  History history_;
  std::vector<Task> tasks_;
  std::vector<int> streams_;
  std::map<std::pair<int, int>, int> links_;  // (source, destination): its stream
  std::vector<Clock> clock_of_stream_;        // after the last task on it
  std::vector<Clock> done_;                   // by task: what is done when it is
};

}  // namespace

Schedule schedule(const Plan& plan) {
  return Scheduler(plan).result();
}

}  // namespace lockstep::collective
