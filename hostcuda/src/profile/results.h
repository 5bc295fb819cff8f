// What the profile keeps of all launches: for each kernel and shape, and in it for each instruction, sums
// over the requests that were recorded; and the races. Recorders add to it, the reports read it at the end.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <hostcuda/launch.h>
#include "hostcuda/src/profile/requests.h"
#include "hostcuda/src/profile/shadow.h"
#include "hostcuda/src/profile/traffic.h"

namespace hostcuda::profile {

// The accesses of one machine instruction, which `pc` follows.
struct InstructionCounts {
  const void* pc = nullptr;
  Space space = Space::global;
  Kind kind = Kind::load;
  unsigned bytes = 0;  // a lane
  uint64_t requests = 0;
  uint64_t lanes = 0;   // accesses: lanes of all requests
  uint64_t narrow = 0;  // requests of fewer lanes than the warp has
  uint64_t sectors = 0;
  uint64_t passes = 0;
  uint64_t parts = 0;
  uint64_t most_passes = 0;  // of a part
  uint64_t longest = 0;      // most accesses of one warp in a block
  // How far the addresses of two neighbouring lanes are apart, most often (a vote: the count of those for
  // it).
  int64_t stride = 0;
  uint64_t stride_votes = 0;

  void add(const InstructionCounts& other);
  void vote_stride(int64_t other, uint64_t votes = 1);
};

struct Race {
  const void* earlier = nullptr;  // in the order of the kernel's text as a thread runs it
  const void* later = nullptr;
  Kind earlier_kind = Kind::load;
  Kind later_kind = Kind::load;
  Space space = Space::global;
  Order order = Order::none;
  uint64_t count = 0;
  // The first that was found.
  uint3 earlier_block{}, later_block{}, earlier_thread{}, later_thread{};
  std::string place;  // "tile[33]", "byte 128 of the allocation of 4096 bytes at 0x..."
};

struct ShapeKey {
  std::string kernel;
  const char* file;
  int line;
  std::tuple<unsigned, unsigned, unsigned> block, grid;
  size_t shared_bytes;
  auto operator<=>(const ShapeKey&) const = default;
};

// The launches of one kernel, from one place, with one grid and block.
struct ShapeProfile {
  std::string name;
  LaunchSite site{};
  dim3 grid, block;
  size_t shared_bytes = 0;
  uint64_t launches = 0;
  uint64_t recorded_blocks = 0;  // of all recorded launches
  std::vector<InstructionCounts> instructions;
  std::vector<Race> races;
  uint64_t longest_global = 0;  // most accesses of a warp to global memory, one after the other
  uint64_t longest_shared = 0;
  uint64_t static_shared_bytes = 0;  // of the variables that were touched
  uint64_t barriers = 0;             // most of a block
  TrafficEstimate traffic;           // the sum of so many launches
  uint64_t traffic_launches = 0;
  bool races_complete = true;

  uint64_t blocks() const { return uint64_t{grid.x} * grid.y * grid.z; }
  uint64_t threads() const { return uint64_t{block.x} * block.y * block.z; }
  // What a count of recorded blocks is to be multiplied by to stand for all launches.
  double scale() const {
    return recorded_blocks == 0 ? 0.0
                                : static_cast<double>(launches) * static_cast<double>(blocks()) /
                                      static_cast<double>(recorded_blocks);
  }
  uint64_t recorded_launches() const;
  void add_race(const Race& race);
};

// An access that ended a kernel, or one to memory of the host.
struct Note {
  const void* pc;
  std::string kernel;
  std::string text;
  uint64_t count;
};

class Results {
 public:
  // Counts the launch, for its first blocks; says whether it shall be recorded.
  bool count_launch(const KernelLaunch& launch, bool first_blocks);
  // Adds what was recorded of one.
  void add(const KernelLaunch& launch, const ShapeProfile& recorded);
  void add_note(Note note);

  std::vector<ShapeProfile> shapes() const;
  std::vector<Note> notes() const;

 private:
  mutable std::mutex mutex_;
  std::map<ShapeKey, ShapeProfile> shapes_;
  std::vector<Note> notes_;
};

Results& results();

// "a::b<c::D>" is b<D>.
std::string without_namespaces(std::string name);

// The kernel's name without namespaces.
const std::string& name_of(const KernelLaunch& launch);

}  // namespace hostcuda::profile
