#include "parallel/collective/topology.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/names.h"
#include "core/printable.h"
#include "core/text_file.h"
#include "kernels/check.h"
#include "parallel/collective/json_value.h"

namespace lockstep::collective {
namespace {

constexpr int kMostLinks = 1000;  // between two ranks

int links_of(const Topology& topology, int rank) {
  const std::vector<int>& row = topology.links[rank];
  return std::accumulate(row.begin(), row.end(), 0);
}

// Searches rings one after the other, each depth first from rank 0, and goes back where no further one can be
// laid through what is left. Ways of equal promise are tried by rank, so that the result is always the same.
class Search {
 public:
  explicit Search(const Topology& topology) : left_(topology), visited_(topology.ranks) {}

  std::vector<Ring> run() {
    bound_ = rings_possible();
    ring_ = {0};
    visited_[0] = true;
    extend();
    return best_;
  }

 private:
  static constexpr int64_t kMostSteps = 100'000'000;  // each looks at one rank: a second or less

  // Every ring takes two links of every rank.
  size_t rings_possible() const {
    int least = links_of(left_, 0);
    for (int rank = 1; rank < left_.ranks; ++rank) least = std::min(least, links_of(left_, rank));
    return static_cast<size_t>(left_.ranks == 2 ? least : least / 2);
  }

  bool done() const { return best_.size() == bound_ || steps_ > kMostSteps; }

  // Lays the ring on from its last rank.
  void extend() {
    const int at = ring_.back();
    if (static_cast<int>(ring_.size()) == left_.ranks) {
      if (left_.links[at][0] > 0) close();
      return;
    }
    std::vector<int> ways;
    for (int to = 0; to < left_.ranks; ++to)
      if (!visited_[to] && left_.links[at][to] > 0) ways.push_back(to);
    std::ranges::stable_sort(ways, std::greater(), [&](int to) { return left_.links[at][to]; });
    for (const int to : ways) {
      if (done()) return;
      steps_ += left_.ranks;
      ring_.push_back(to);
      visited_[to] = true;
      if (!cut_off()) extend();
      visited_[to] = false;
      ring_.pop_back();
    }
  }

  // Whether some rank that is still to come could be entered, but not left.
  bool cut_off() const {
    for (int rank = 0; rank < left_.ranks; ++rank) {
      if (visited_[rank]) continue;
      int ways = (left_.links[rank][ring_.back()] > 0) + (left_.links[rank][0] > 0);
      for (int to = 0; to < left_.ranks && ways < 2; ++to) ways += !visited_[to] && left_.links[rank][to] > 0;
      if (ways < 2 && left_.ranks > 2) return true;
    }
    return false;
  }

  void take(const Ring& ring, int links) {
    const int n = left_.ranks;
    for (int place = 0; place < (n == 2 ? 1 : n); ++place) {
      const int a = ring[place], b = ring[(place + 1) % n];
      left_.links[a][b] -= links;
      left_.links[b][a] -= links;
    }
  }

  // A ring is complete: takes its links, and looks for the next one.
  void close() {
    if (left_.ranks > 2 && ring_[1] > ring_.back()) return;  // was, or will be, found the other way round
    const Ring ring = ring_;
    take(ring, 1);
    found_.push_back(ring);
    if (found_.size() > best_.size()) best_ = found_;
    if (!done() && found_.size() + rings_possible() > best_.size()) {
      const std::vector<bool> visited = visited_;
      ring_ = {0};
      visited_.assign(visited_.size(), false);
      visited_[0] = true;
      extend();
      ring_ = ring;
      visited_ = visited;
    }
    found_.pop_back();
    take(ring, -1);
  }

  Topology left_;  // the links that no ring has taken
  std::vector<bool> visited_;
  Ring ring_;  // the one that is being laid
  std::vector<Ring> found_, best_;
  size_t bound_ = 0;
  int64_t steps_ = 0;
};

std::vector<bool> reached_from_0(const Topology& topology) {
  std::vector<bool> reached(static_cast<size_t>(topology.ranks));
  std::vector<int> next{0};
  reached[0] = true;
  while (!next.empty()) {
    const int rank = next.back();
    next.pop_back();
    for (int to = 0; to < topology.ranks; ++to)
      if (topology.links[rank][to] > 0 && !reached[to]) {
        reached[to] = true;
        next.push_back(to);
      }
  }
  return reached;
}

}  // namespace

void check(const Topology& topology) {
  check_sizes(topology.ranks, 0);
  const auto n = static_cast<size_t>(topology.ranks);
  if (topology.links.size() != n)
    throw Error(fmt::format("topology: {} rows of links for {} ranks", topology.links.size(), n));
  for (size_t a = 0; a < n; ++a)
    if (topology.links[a].size() != n)
      throw Error(fmt::format("topology: links[{}] has {} numbers, but there are {} ranks", a,
                              topology.links[a].size(), n));
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b) {
      const int links = topology.links[a][b];
      if (links < 0)
        throw Error(fmt::format("topology: links[{}][{}] is {}: there are 0 or more", a, b, links));
      if (a == b && links > 0) throw Error(fmt::format("topology: rank {} has links to itself", a));
      if (links != topology.links[b][a])
        throw Error(
            fmt::format("topology: links[{}][{}] is {}, but links[{}][{}] is {}: a link leads both ways", a,
                        b, links, b, a, topology.links[b][a]));
    }
  }
  const std::vector<bool> reached = reached_from_0(topology);
  if (const auto not_reached = std::ranges::find(reached, false); not_reached != reached.end())
    throw Error(fmt::format("topology: no links lead from rank 0 to rank {}", not_reached - reached.begin()));
}

Topology matrix_of(const nlohmann::json& rows) {
  if (!rows.is_array()) throw Error(fmt::format("topology: links is {}: use a list of rows", shown(rows)));
  Topology topology{0, {}};
  for (size_t a = 0; a < rows.size(); ++a) {
    if (!rows[a].is_array())
      throw Error(fmt::format("topology: links[{}] is {}: use a list of numbers", a, shown(rows[a])));
    topology.links.emplace_back();
    for (size_t b = 0; b < rows[a].size(); ++b)
      topology.links[a].push_back(static_cast<int>(
          whole_number(rows[a][b], fmt::format("topology: links[{}][{}]", a, b), 0, kMostLinks)));
  }
  topology.ranks = static_cast<int>(topology.links.size());
  check(topology);
  return topology;
}

Topology parse_topology(const std::string& json, const std::string& name) {
  try {
    const nlohmann::json file = parse_json(json);
    if (!file.is_object()) throw Error("topology: this is no object");
    const std::vector<std::string> known{"links",     "GBps",        "alpha_us", "start_us",
                                         "port_GBps", "memory_GBps", "uplinks"};
    for (const auto& [key, unused] : file.items())
      if (std::ranges::find(known, key) == known.end())
        throw unknown_name("topology", shown_name(key), known);
    if (!file.contains("links")) throw Error("topology: links is missing");
    return matrix_of(file["links"]);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", printable(name), error.what()));
  }
}

Topology read_topology(const std::filesystem::path& file) {
  return parse_topology(read_text(file), file.native());
}

Topology this_machine() {
  int devices = 0;
  LOCKSTEP_CUDA(cudaGetDeviceCount(&devices));
  const auto n = static_cast<size_t>(devices);
  Topology topology{devices, std::vector<std::vector<int>>(n, std::vector<int>(n))};
  const auto reaches = [](int a, int b) {
    int supported = 0;
    LOCKSTEP_CUDA(cudaDeviceGetP2PAttribute(&supported, cudaDevP2PAttrAccessSupported, a, b));
    return supported != 0;
  };
  for (int a = 0; a < devices; ++a)
    for (int b = 0; b < a; ++b)
      if (reaches(a, b) && reaches(b, a)) topology.links[a][b] = topology.links[b][a] = 1;
  check(topology);
  return topology;
}

std::vector<Ring> disjoint_rings(const Topology& topology) {
  check(topology);
  if (topology.ranks == 1) return {{0}};
  for (int rank = 0; rank < topology.ranks; ++rank)
    if (const int links = links_of(topology, rank); links < 2 && topology.ranks > 2)
      throw Error(fmt::format("topology: no ring: it needs two links of rank {}, which has {}", rank, links));
  std::vector<Ring> rings = Search(topology).run();
  if (rings.empty()) throw Error("topology: no ring through all ranks was found");
  return rings;
}

}  // namespace lockstep::collective
