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

// Slice i of n of `whole`: sizes differ by one unit at most. Long slices begin on whole 128-byte lines of
// floats, counted from the beginning of `whole`, which copies and vector loads like.
Slice slice_of(const Slice& whole, int n, int i);

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

// What the buffers hold at the end. "Slice i" is slice_of(all elements, ranks, i); "the sum" is that of what
// all ranks held at the beginning. What is not named here may hold anything.
enum class Goal {
  allreduce,       // every rank: the sum
  reduce_scatter,  // rank r: the sum, in slice r
  all_gather,      // every rank: in slice i, what rank i held there
  broadcast,       // every rank: what rank `root` held
  reduce,          // rank `root`: the sum
  all_to_all,      // rank r: in part r of every slice i, which has n parts too, what rank i held there
};

// "allreduce", "reduce_scatter", ...
std::string name_of(Goal goal);
const std::vector<Goal>& goals();

// Transfers are listed by rising round. Those of one round happen at the same time; a rank may start its next
// round when its own transfers of the earlier ones, out and in, are done.
struct Plan {
  int ranks;
  int64_t count;  // elements of every rank's buffer
  std::vector<Transfer> transfers;
  Goal goal = Goal::allreduce;
  int root = 0;  // of a broadcast and a reduce
  // Each slice is summed up in one rank, in the order of the ranks, and copied to all others, by one kernel
  // that reads and writes the memory of all.
  bool fused = false;
};

// What a plan costs: its rounds, and the elements that its busiest rank sends, and receives.
struct Cost {
  int rounds;
  int64_t most_sent, most_received;
};
Cost cost_of(const Plan& plan);

// Beyond these a size is a mistake of its caller's: a plan grows with the square of the ranks.
constexpr int kMostRanks = 4096;
constexpr int64_t kMostElements = int64_t{1} << 48;
// Throws where there is not 1 to kMostRanks ranks, or not 0 to kMostElements elements.
void check_sizes(int ranks, int64_t count);

// Makes the plan for one goal. Throws as check_sizes does; the plan of one rank, and that of no elements, is
// empty.
using Algorithm = Plan (*)(int ranks, int64_t count);
// The same for an algorithm that works on several chunks of the buffer at a time, with so many chunks (1 to
// kMostChunks; 0: as many as suit the count).
using ChunkedAlgorithm = Plan (*)(int ranks, int64_t count, int chunks);
constexpr int kMostChunks = 4096;

// --- allreduce

Plan star(int ranks, int64_t count);                     // star.cc
Plan sharded_star(int ranks, int64_t count);             //
Plan one_shot(int ranks, int64_t count);                 //          star, fused
Plan two_shot(int ranks, int64_t count);                 //          sharded_star, fused
Plan ring(int ranks, int64_t count);                     // ring.cc
Plan bidirectional_ring(int ranks, int64_t count);       //
Plan tree(int ranks, int64_t count);                     // tree.cc
Plan tree(int ranks, int64_t count, int chunks);         //
Plan double_tree(int ranks, int64_t count);              //
Plan double_tree(int ranks, int64_t count, int chunks);  //
Plan halving_doubling(int ranks, int64_t count);         // halving_doubling.cc

// Ranks in the order in which a ring passes through them; from the last it goes back to the first.
using Ring = std::vector<int>;
enum class Directions { one, both };
// Over several rings at once, each with its own part of the buffer and used in both directions
// (topology.h finds rings that share no link). Throws where a ring does not pass through every rank once.
Plan rings(const std::vector<Ring>& rings, int64_t count,
           Directions directions = Directions::both);  // ring.cc

// --- the others, out of the same parts

Plan reduce_scatter(int ranks, int64_t count);         // ring.cc: the first lap
Plan all_gather(int ranks, int64_t count);             //          the second lap
Plan reduce(int ranks, int64_t count);                 // tree.cc: up, to rank 0
Plan reduce(int ranks, int64_t count, int chunks);     //
Plan broadcast(int ranks, int64_t count);              //          down, from rank 0
Plan broadcast(int ranks, int64_t count, int chunks);  //
Plan all_to_all(int ranks, int64_t count);             // star.cc: each with each

// To add an algorithm: its function, and its line in the table in plan.cc. Options, help texts and tests take
// the names from there.
struct NamedAlgorithm {
  std::string name;
  Algorithm plan;
  ChunkedAlgorithm in_chunks = nullptr;  // where it works in chunks
};
// Those for an allreduce.
const std::vector<NamedAlgorithm>& algorithms();
std::vector<std::string> algorithm_names();
// Throws, naming `option` and the nearest name, where there is no such algorithm.
Algorithm algorithm_named(const std::string& name, const std::string& option = "allreduce");
// And those for the other goals.
const std::vector<NamedAlgorithm>& other_collectives();

}  // namespace lockstep::collective
