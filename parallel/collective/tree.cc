// Trees: sums climb to the root, the total comes down, and both happen at the same time for different chunks
// of the buffer. Each half of it is a collective of its own: reduce and broadcast.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/check.h"
#include "parallel/collective/parts.h"

namespace lockstep::collective {
namespace {

// Who is whose parent, and when a chunk passes.
struct Tree {
  std::vector<int> parent;  // by rank; -1: the root
  std::vector<int> depth;   // below the root
  std::vector<int> up;  // the round in which a rank sends its first chunk up; of the root: has it complete
  int root = 0;
  int complete() const { return up[root]; }
  int levels() const { return *std::ranges::max_element(depth); }
};

// A parent can add one child's chunk at a time: the child that is ready first comes first.
Tree with_rounds(std::vector<int> parent) {
  const size_t n = parent.size();
  Tree tree{std::move(parent), std::vector<int>(n), std::vector<int>(n)};
  std::vector<std::vector<int>> children(n);
  for (size_t rank = 0; rank < n; ++rank) {
    if (tree.parent[rank] < 0)
      tree.root = static_cast<int>(rank);
    else
      children[tree.parent[rank]].push_back(static_cast<int>(rank));
    for (int above = tree.parent[rank]; above >= 0; above = tree.parent[above]) ++tree.depth[rank];
  }
  std::vector<int> deepest_first(n);
  std::iota(deepest_first.begin(), deepest_first.end(), 0);
  std::ranges::stable_sort(deepest_first, std::greater(), [&](int rank) { return tree.depth[rank]; });
  for (const int rank : deepest_first) {
    std::ranges::stable_sort(children[rank], {}, [&](int child) { return tree.up[child]; });
    int round = 0;
    for (const int child : children[rank]) {
      tree.up[child] = std::max(tree.up[child], round);
      round = tree.up[child] + 1;
    }
    tree.up[rank] = round;
  }
  return tree;
}

// Rank r has the children 2r + 1 and 2r + 2.
Tree heap(int ranks) {
  std::vector<int> parent;
  for (int rank = 0; rank < ranks; ++rank) parent.push_back(rank == 0 ? -1 : (rank - 1) / 2);
  return with_rounds(std::move(parent));
}

void add_up(Plan& plan, const Tree& tree, const Slice& part, int chunks) {
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int rank = 0; rank < plan.ranks; ++rank)
      if (rank != tree.root)
        send(plan, tree.up[rank] + chunk, rank, tree.parent[rank], slice_of(part, chunks, chunk),
             Action::add);
}

// Beginning with the round in which the root has the first chunk: level by level, to both children at once.
void add_down(Plan& plan, const Tree& tree, const Slice& part, int chunks, int first_round) {
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int rank = 0; rank < plan.ranks; ++rank)
      if (rank != tree.root)
        send(plan, first_round + tree.depth[rank] - 1 + chunk, tree.parent[rank], rank,
             slice_of(part, chunks, chunk), Action::copy);
}

// How many chunks, where r rounds are needed for one and an inner rank's port carries `load` times the
// buffer: (r - 1 + k) rounds of a fixed cost and load / k buffers each take least for k as below. The fixed
// cost is that of kRound floats: 10 us at 400 GB/s.
int chunks_for(int given, int rounds, double load, int64_t count) {
  constexpr double kRound = 1 << 20;
  constexpr double kMostByItself = 64;
  if (given < 0 || given > kMostChunks)
    throw Error(fmt::format("plan: {} chunks: there may be 1 to {}", given, kMostChunks));
  if (given > 0) return given;
  const double best = std::sqrt(std::max(0, rounds - 1) * load * static_cast<double>(count) / kRound);
  return static_cast<int>(std::clamp(best, 1.0, kMostByItself));
}

}  // namespace

// Tree: rank r has the children 2r + 1 and 2r + 2. Sums climb to the root, then the total comes down. The
// buffer is cut into chunks, which follow each other: when a rank passes on one, it already receives the
// next.
//
//           0            a parent can add only one chunk at a time, so its second child sends a round later
//         /   \          than the first; a sum arrives at the root after 2h rounds and is with all after h
//        1     2         more. The next chunk is one round behind.
//       / \   /
//      3   4 5
//
// Cost: at most 3h - 1 + k rounds for k chunks and h = floor(log2 n) levels below the root; an inner rank's
// port carries 3S bytes each way, a leaf's S.
Plan tree(int ranks, int64_t count, int chunks) {
  Plan plan = empty_plan(ranks, count);
  const Tree tree = heap(ranks);
  const int k = chunks_for(chunks, tree.complete() + tree.levels(), 3, count);
  add_up(plan, tree, {0, count}, k);
  add_down(plan, tree, {0, count}, k, tree.complete());
  sort_by_round(plan);
  return plan;
}

// Double tree: half of the buffer goes over one tree and half over another, in which the leaves of the first
// are inner ranks, so that all ports are equally busy (Sanders, Speck and Traeff, 2009). In the first tree
// odd ranks are leaves: rank r, whose lowest set bit is b, is the middle of the ranks r - b to r + b, and its
// children are the middles of both halves.
//
//                0                The second tree is the first one's mirror image, rank n-1-r in place of r,
//                |                for even n; for odd n it is moved on by one, rank r+1 in place of r. (These
//                4                are NCCL's trees.)
//            /       \.
//          2           6
//        /   \       /   \.
//       1     3     5     7
//
// Cost: at most 3h - 2 + k rounds, for k chunks of each half and h = ceil(log2 n); every port carries at most
// 2S bytes each way.
Plan double_tree(int ranks, int64_t count, int chunks) {
  Plan plan = empty_plan(ranks, count);
  std::vector<int> first(static_cast<size_t>(ranks), -1), second(first);
  for (int r = 1; r < ranks; ++r) {
    const int b = r & -r;
    const bool right_half = (r & 2 * b) != 0 || r + b >= ranks;
    first[r] = right_half ? r - b : r + b;
  }
  const auto other = [&](int r) { return ranks % 2 == 0 ? ranks - 1 - r : (r + 1) % ranks; };
  for (int r = 1; r < ranks; ++r) second[other(r)] = other(first[r]);

  const Tree trees[] = {with_rounds(first), with_rounds(second)};
  const int k = chunks_for(chunks, trees[0].complete() + trees[0].levels(), 2, count);
  for (const int half : {0, 1}) {
    const Slice part = slice_of({0, count}, 2, half);
    add_up(plan, trees[half], part, k);
    add_down(plan, trees[half], part, k, trees[half].complete());
  }
  sort_by_round(plan);
  return plan;
}

// The tree's way up. Cost: at most 2h - 1 + k rounds; an inner rank receives 2S bytes and sends S.
Plan reduce(int ranks, int64_t count, int chunks) {
  Plan plan = empty_plan(ranks, count, Goal::reduce);
  const Tree tree = heap(ranks);
  add_up(plan, tree, {0, count}, chunks_for(chunks, tree.complete(), 2, count));
  sort_by_round(plan);
  return plan;
}

// The tree's way down. Cost: h - 1 + k rounds; an inner rank sends 2S bytes and receives S.
Plan broadcast(int ranks, int64_t count, int chunks) {
  Plan plan = empty_plan(ranks, count, Goal::broadcast);
  const Tree tree = heap(ranks);
  add_down(plan, tree, {0, count}, chunks_for(chunks, tree.levels(), 2, count), 0);
  sort_by_round(plan);
  return plan;
}

Plan tree(int ranks, int64_t count) {
  return tree(ranks, count, 0);
}

Plan double_tree(int ranks, int64_t count) {
  return double_tree(ranks, count, 0);
}

Plan reduce(int ranks, int64_t count) {
  return reduce(ranks, count, 0);
}

Plan broadcast(int ranks, int64_t count) {
  return broadcast(ranks, count, 0);
}

}  // namespace lockstep::collective
