// What carries the bytes of a plan, and how fast: a server's devices, what else its wires meet in (a CPU, a
// switch), its links, and, where there are several servers alike, their links to the network between them.
// What a transfer uses are "lanes": each direction of a link, a node's port, a device's memory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "parallel/collective/topology.h"

namespace lockstep::collective {

struct LinkSpeed {
  double gigabytes_per_second;  // each way, of each of them where there are several; 10^9 bytes
  double alpha_us = 0;          // the time to pass it
};

// What a file says nothing of.
struct NetworkDefaults {
  LinkSpeed link{25, 0};
  double start_us = 10;  // to start a transfer
};

// What a transfer takes of a lane for each byte that arrives.
struct Use {
  int lane;
  double bytes;
};

struct Path {
  double alpha = 0;  // seconds
  std::vector<Use> uses;
};

class Network {
 public:
  // {"links": [[0, 2], [2, 0]]}, a matrix as in topology.h, or
  // {"devices": 2, "nodes": ["switch"], "links": [{"from": [0, 1], "to": "switch", "GBps": 16}]}, and what
  // docs/allreduce.md lists. `name` opens the errors.
  static Network parse(const std::string& json, const std::string& name, const NetworkDefaults& defaults);
  static Network read(const std::filesystem::path& file, const NetworkDefaults& defaults);
  // Every device has a link of this kind to one switch, which is never busy.
  static Network flat(const NetworkDefaults& defaults);

  // Devices of a server, and the most there are of them with more servers of this kind.
  int devices_per_server() const { return devices_; }
  bool has_servers() const { return has_servers_; }
  // Throws Error, calling it `option`, where there cannot be so many devices: servers are full.
  void check_devices(int devices, const std::string& option) const;
  // The matrix, where the links were one: rings are found in it.
  const std::optional<Topology>& topology() const { return topology_; }

  // The node with this name ("3" is device 3), in the first server. Throws, naming `option`, where there is
  // none. Nodes 0 .. devices_per_server() - 1 are devices; those of the next server follow the last of a
  // server.
  int node_named(const std::string& name, const std::string& option) const;
  // The node of device d, counted through all servers.
  int node_of(int device) const { return device / devices_ * nodes() + device % devices_; }
  int server_of(int node) const { return node / nodes(); }
  // The way of bytes from one node to another one that reads them, with the fewest links. With `adds` the
  // destination's memory is read and written, else written.
  Path path(int source, int destination, bool adds) const;

  // Bytes per second of a lane.
  double capacity(int lane) const { return capacities_[lane % capacities_.size()]; }
  int lanes(int servers) const { return servers * static_cast<int>(capacities_.size()); }

 private:
  struct Link {
    int a, b;      // node nodes() is the network between servers
    double alpha;  // seconds
    int lane;      // from a to b
    int back;      // from b to a; the same where both directions share
  };
  struct Hop {
    int link;
    bool back;
  };
  using Route = std::vector<Hop>;
  int nodes() const { return static_cast<int>(names_.size()); }
  int add_lane(double gigabytes_per_second);
  void add_link(int a, int b, const LinkSpeed& speed, double count, bool shared);
  void limit_devices(double port, double memory);
  // Finds all routes. Throws Error where some node is not reached.
  void find_routes();
  std::vector<Route> routes_from(int from) const;
  void pass(Path& path, int server, const Route& route) const;
  friend class NetworkFile;

  int devices_ = 0;
  bool has_servers_ = false;
  std::vector<std::string> names_;  // of a server's nodes, devices first
  std::vector<Link> links_;
  std::vector<double> capacities_;                // of a server's lanes, bytes per second
  std::vector<int> memory_, port_in_, port_out_;  // by device: its lanes; empty: no limit
  std::vector<std::vector<Route>> routes_;        // [from][to], the network being the last node
  double start_ = 0;                              // seconds
  std::optional<Topology> topology_;
};

}  // namespace lockstep::collective
