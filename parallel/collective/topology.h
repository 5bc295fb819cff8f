// Which ranks have links to which, and the rings that can be laid through them without sharing a link.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "parallel/collective/plan.h"

namespace lockstep::collective {

// Each link leads both ways.
struct Topology {
  int ranks;
  std::vector<std::vector<int>> links;  // links[a][b] = links[b][a]: how many; none from a rank to itself
};

// Throws Error, naming what is wrong, unless it is as above, and one can get from every rank to every other.
void check(const Topology& topology);

// {"links": [[0, 2, 1], [2, 0, 1], [1, 1, 0]]}: row a has the links from rank a to each other one, as
// `nvidia-smi topo -m` prints them for NVLink. `name` opens the errors. The result is checked. How fast the
// links are may stand beside them (network.h reads it).
Topology matrix_of(const nlohmann::json& links);
Topology parse_topology(const std::string& json, const std::string& name);
Topology read_topology(const std::filesystem::path& file);

// The physical devices of this machine: a link where two reach each other's memory. How many links that
// takes, CUDA does not tell.
Topology this_machine();

// Rings through all ranks that share no link (where two ranks have two links, two rings may use them). As
// many as there can be (twice as many links as rings at every rank), unless the search is given up before.
// The rings with most links between neighbours come first. Throws Error where there is none.
std::vector<Ring> disjoint_rings(const Topology& topology);

}  // namespace lockstep::collective
