#include "parallel/collective/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "core/names.h"

namespace lockstep::collective {

int Network::add_lane(double gigabytes_per_second) {
  capacities_.push_back(gigabytes_per_second * 1e9);
  return static_cast<int>(capacities_.size()) - 1;
}

void Network::add_link(int a, int b, const LinkSpeed& speed, double count, bool shared) {
  const int lane = add_lane(speed.gigabytes_per_second * count);
  const int back = shared ? lane : add_lane(speed.gigabytes_per_second * count);
  links_.push_back({a, b, speed.alpha_us * 1e-6, lane, back});
}

void Network::limit_devices(double port, double memory) {
  for (int device = 0; device < devices_; ++device) {
    if (port > 0) {
      port_in_.push_back(add_lane(port));
      port_out_.push_back(add_lane(port));
    }
    if (memory > 0) memory_.push_back(add_lane(memory));
  }
}

// Breadth first, links in their order: the fewest links, and always the same ones.
std::vector<Network::Route> Network::routes_from(int from) const {
  std::vector<std::vector<Hop>> leaving(names_.size() + 1);
  for (size_t l = 0; l < links_.size(); ++l) {
    leaving[links_[l].a].push_back({static_cast<int>(l), false});
    leaving[links_[l].b].push_back({static_cast<int>(l), true});
  }
  std::vector<Route> routes(names_.size() + 1);
  std::vector<bool> reached(names_.size() + 1);
  reached[from] = true;
  for (std::deque<int> next{from}; !next.empty(); next.pop_front())
    for (const Hop& hop : leaving[next.front()]) {
      const int to = hop.back ? links_[hop.link].a : links_[hop.link].b;
      if (reached[to]) continue;
      reached[to] = true;
      routes[to] = routes[next.front()];
      routes[to].push_back(hop);
      next.push_back(to);
    }
  for (int node = 0; node < nodes(); ++node)
    if (!reached[node])
      throw Error(fmt::format("topology: no links lead from {} to {}",
                              from == nodes() ? "the network" : names_[from], names_[node]));
  return routes;
}

void Network::find_routes() {
  for (int node = 0; node < nodes() + (has_servers_ ? 1 : 0); ++node) routes_.push_back(routes_from(node));
}

void Network::pass(Path& path, int server, const Route& route) const {
  const int first = server * static_cast<int>(capacities_.size());
  for (const Hop& hop : route) {
    const Link& link = links_[hop.link];
    path.alpha += link.alpha;
    path.uses.push_back({first + (hop.back ? link.back : link.lane), 1});
  }
}

Path Network::path(int source, int destination, bool adds) const {
  const int from = source / nodes(), to = destination / nodes();  // servers
  const int a = source % nodes(), b = destination % nodes();
  Path path{start_, {}};
  if (from == to) {
    pass(path, from, routes_[a][b]);
  } else {
    pass(path, from, routes_[a][nodes()]);
    pass(path, to, routes_[nodes()][b]);
  }
  const auto use = [&](const std::vector<int>& lanes, int server, int node, double bytes) {
    if (node < static_cast<int>(lanes.size()))
      path.uses.push_back({server * static_cast<int>(capacities_.size()) + lanes[node], bytes});
  };
  use(port_out_, from, a, 1);
  use(port_in_, to, b, 1);
  use(memory_, from, a, 1);
  use(memory_, to, b, adds ? 2 : 1);
  return path;
}

void Network::check_devices(int devices, const std::string& option) const {
  if (devices <= devices_ || (has_servers_ && devices % devices_ == 0)) return;
  throw Error(has_servers_
                  ? fmt::format("{} is {}: the topology's servers have {} devices each: use a multiple",
                                option, devices, devices_)
                  : fmt::format("{} is {}: the topology has {} devices, and no uplinks to further servers",
                                option, devices, devices_));
}

int Network::node_named(const std::string& name, const std::string& option) const {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end()) throw unknown_name(option, name, names_);
  return static_cast<int>(found - names_.begin());
}

Network Network::flat(const NetworkDefaults& defaults) {
  Network network;
  network.devices_ = 1;
  network.has_servers_ = true;
  network.names_ = {"0"};
  network.start_ = defaults.start_us * 1e-6;
  network.add_link(0, 1, {defaults.link.gigabytes_per_second, defaults.link.alpha_us / 2}, 1, false);
  network.find_routes();
  return network;
}

}  // namespace lockstep::collective
