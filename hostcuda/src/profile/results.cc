#include "hostcuda/src/profile/results.h"

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "hostcuda/src/runtime/report.h"

namespace hostcuda::profile {

namespace {

// Launches of one kernel, grid and block that are recorded; the others are taken to be like them.
constexpr uint64_t kRecordedLaunches = 2;

ShapeKey key_of(const KernelLaunch& launch) {
  return {name_of(launch),
          launch.site.file,
          launch.site.line,
          {launch.block.x, launch.block.y, launch.block.z},
          {launch.grid.x, launch.grid.y, launch.grid.z},
          launch.shared_bytes};
}

}  // namespace

std::string without_namespaces(std::string name) {
  const std::string unnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(unnamed)) != std::string::npos;) name.erase(at, unnamed.size());
  std::string result;
  size_t word = 0;  // where the last identifier of `result` begins
  for (size_t i = 0; i < name.size(); ++i) {
    if (name.compare(i, 2, "::") == 0 && word < result.size()) {
      result.resize(word);
      ++i;
      continue;
    }
    result += name[i];
    if (std::isalnum(static_cast<unsigned char>(name[i])) == 0 && name[i] != '_') word = result.size();
  }
  return result;
}

void InstructionCounts::vote_stride(int64_t other, uint64_t votes) {
  if (stride == other) {
    stride_votes += votes;
  } else if (stride_votes >= votes) {
    stride_votes -= votes;
  } else {
    stride = other;
    stride_votes = votes - stride_votes;
  }
}

void InstructionCounts::add(const InstructionCounts& other) {
  requests += other.requests;
  lanes += other.lanes;
  narrow += other.narrow;
  sectors += other.sectors;
  passes += other.passes;
  parts += other.parts;
  most_passes = std::max(most_passes, other.most_passes);
  longest = std::max(longest, other.longest);
  vote_stride(other.stride, other.stride_votes);
}

void ShapeProfile::add_race(const Race& race) {
  for (Race& known : races) {
    const bool same = known.earlier == race.earlier && known.later == race.later;
    if (!same || known.space != race.space) continue;
    known.count += race.count;
    return;
  }
  races.push_back(race);
}

uint64_t ShapeProfile::recorded_launches() const {
  return std::min(launches, kRecordedLaunches);
}

bool Results::count_launch(const KernelLaunch& launch, bool first_blocks) {
  const std::lock_guard hold(mutex_);
  ShapeProfile& shape = shapes_[key_of(launch)];
  if (shape.name.empty()) {
    shape.name = name_of(launch);
    shape.site = launch.site;
    shape.grid = launch.grid;
    shape.block = launch.block;
    shape.shared_bytes = launch.shared_bytes;
  }
  if (first_blocks) ++shape.launches;
  return shape.launches <= kRecordedLaunches;
}

void Results::add(const KernelLaunch& launch, const ShapeProfile& recorded) {
  const std::lock_guard hold(mutex_);
  ShapeProfile& shape = shapes_[key_of(launch)];
  shape.recorded_blocks += recorded.recorded_blocks;
  shape.longest_global = std::max(shape.longest_global, recorded.longest_global);
  shape.longest_shared = std::max(shape.longest_shared, recorded.longest_shared);
  shape.static_shared_bytes = std::max(shape.static_shared_bytes, recorded.static_shared_bytes);
  shape.barriers = std::max(shape.barriers, recorded.barriers);
  shape.traffic.read_once += recorded.traffic.read_once;
  shape.traffic.written_once += recorded.traffic.written_once;
  shape.traffic.read_by_blocks += recorded.traffic.read_by_blocks;
  shape.traffic.written_by_blocks += recorded.traffic.written_by_blocks;
  shape.traffic_launches += recorded.traffic_launches;
  shape.races_complete = shape.races_complete && recorded.races_complete;
  for (const InstructionCounts& counts : recorded.instructions) {
    const auto same = [&](const InstructionCounts& known) {
      return known.pc == counts.pc && known.space == counts.space && known.kind == counts.kind &&
             known.bytes == counts.bytes;
    };
    const auto known = std::find_if(shape.instructions.begin(), shape.instructions.end(), same);
    if (known == shape.instructions.end())
      shape.instructions.push_back(counts);
    else
      known->add(counts);
  }
  for (const Race& race : recorded.races) shape.add_race(race);
}

void Results::add_note(Note note) {
  const std::lock_guard hold(mutex_);
  for (Note& known : notes_) {
    if (known.pc != note.pc || known.text != note.text) continue;
    known.count += note.count;
    return;
  }
  notes_.push_back(std::move(note));
}

std::vector<ShapeProfile> Results::shapes() const {
  const std::lock_guard hold(mutex_);
  std::vector<ShapeProfile> all;
  for (const auto& [key, shape] : shapes_) all.push_back(shape);
  return all;
}

std::vector<Note> Results::notes() const {
  const std::lock_guard hold(mutex_);
  return notes_;
}

const std::string& name_of(const KernelLaunch& launch) {
  thread_local std::unordered_map<const void*, std::string> names;
  std::string& name = names[launch.kernel];
  if (name.empty()) name = without_namespaces(kernel_name(launch));
  if (name.empty()) name = "a kernel without a name";
  return name;
}

Results& results() {
  static Results* const results = new Results;  // kept to the end: the report is written at exit
  return *results;
}

}  // namespace hostcuda::profile
