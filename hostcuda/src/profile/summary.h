// The profile as it is shown: per kernel, and in it per source line, with the recorded blocks scaled up to
// all.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hostcuda/src/profile/registers.h"
#include "hostcuda/src/profile/results.h"
#include "hostcuda/src/profile/source_lines.h"

namespace hostcuda::profile {

// The loads, the stores or the atomic operations of one line.
struct LineSummary {
  SourceLine line;
  Space space = Space::global;
  Kind kind = Kind::load;
  // Of all launches.
  double requests = 0;
  double lanes = 0;
  double bytes_asked = 0;
  double bytes_moved = 0;  // global: sectors of 32 bytes
  double passes = 0;
  double parts = 0;
  unsigned least_width = 0;  // bytes a lane takes at once
  unsigned width = 0;        // the most
  uint64_t most_passes = 0;
  uint64_t longest = 0;     // most such accesses of one warp in a block
  int64_t stride = 0;       // bytes between neighbouring threads, most often, at its heaviest instruction
  double heaviest = 0;      // bytes moved, and passes, of that one
  std::string wrong;        // with its worst instruction, in a sentence; empty where nothing is
  double wrong_weight = 0;  // what that costs: bytes, passes or requests too many

  double lanes_a_request() const { return requests == 0 ? 0 : lanes / requests; }
  double sectors_a_request() const { return requests == 0 ? 0 : bytes_moved / 32 / requests; }
  double conflict() const { return parts == 0 ? 0 : passes / parts; }  // 1: none
};

struct RaceSummary {
  Race race;
  SourceLine earlier, later;
};

struct ShapeSummary {
  dim3 grid;
  uint64_t launches = 0, recorded_launches = 0, recorded_blocks = 0;
};

struct KernelSummary {
  std::string name;
  std::string site;  // file:line of the launch
  dim3 block;
  size_t dynamic_shared_bytes = 0;
  uint64_t static_shared_bytes = 0;  // of the variables that were touched
  std::vector<ShapeSummary> shapes;  // by their grid; the one that moves most first
  Registers registers;               // 0 where nobody has told
  uint64_t launches = 0;
  double blocks = 0;
  double recorded_blocks = 0;
  double launched_blocks_of_recorded = 0;  // what the recorded blocks stand for within the recorded launches
  uint64_t longest_global = 0, longest_shared = 0;
  bool races_complete = true;
  std::vector<LineSummary> lines;  // those that move most first
  std::vector<RaceSummary> races;
  double bytes_moved = 0;
};

struct NoteSummary {
  Note note;
  SourceLine line;
};

struct Summary {
  std::vector<KernelSummary> kernels;  // those that move most first
  std::vector<NoteSummary> notes;
};

// `registers` are of kernels by their names.
Summary summarise(const Results& results, const std::map<std::string, Registers>& registers);

// What is wrong with a race, and what is missing, in lines of at most `width` characters each.
std::vector<std::string> describe_race(const RaceSummary& race, size_t width);

}  // namespace hostcuda::profile
