// A collective is a plan: a list of transfers between ranks, made by a pure function of the number of ranks
// and elements. The checker proves a plan right, the executor runs it; neither knows an algorithm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::collective {

// Elements [begin, end) of a buffer.
struct Slice {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

enum class Action {
  copy,  // destination[slice] = source[slice]
  add,   // destination[slice] += source[slice]
};

struct Transfer {
  int round;
  int source, destination;  // ranks, 0 .. ranks - 1
  Slice slice;              // the same elements at both ends; not empty
  Action action;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

// "round 2: 0 -> 1 add [4, 6)"
std::string to_string(const Transfer& transfer);

// Transfers are listed by rising round. Those of one round happen at the same time; a rank may start its next
// round when its own transfers of the earlier ones, out and in, are done.
struct Plan {
  int ranks;
  int64_t count;  // elements of every rank's buffer
  std::vector<Transfer> transfers;
  // Each slice is summed up in one rank, in the order of the ranks, and copied to all others, by one kernel
  // that reads and writes the memory of all.
  bool fused = false;
};

// Beyond these a size is a mistake of its caller's: a plan grows with the square of the ranks.
constexpr int kMostRanks = 1024;
constexpr int64_t kMostElements = int64_t{1} << 48;
// Throws where there is not 1 to kMostRanks ranks, or not 0 to kMostElements elements.
void check_sizes(int ranks, int64_t count);

// Makes the plan that leaves the sum over all ranks in every rank's buffer. Throws as check_sizes does; the
// plan of one rank, and that of no elements, is empty.
using Algorithm = Plan (*)(int ranks, int64_t count);

Plan star(int ranks, int64_t count);
Plan ring(int ranks, int64_t count);
Plan tree(int ranks, int64_t count);
Plan one_shot(int ranks, int64_t count);
Plan two_shot(int ranks, int64_t count);

// All algorithms by name. To add one: its function, and its line in the table in plan.cc. Options, help texts
// and tests take the names from here.
struct NamedAlgorithm {
  std::string name;
  Algorithm plan;
};
const std::vector<NamedAlgorithm>& algorithms();
std::vector<std::string> algorithm_names();
// Throws, naming `option` and the nearest name, where there is no such algorithm.
Algorithm algorithm_named(const std::string& name, const std::string& option = "allreduce");

}  // namespace lockstep::collective
