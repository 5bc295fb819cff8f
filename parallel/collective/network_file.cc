// Reads a network from a topology file (docs/allreduce.md has the format).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/names.h"
#include "core/printable.h"
#include "core/text_file.h"
#include "parallel/collective/json_value.h"
#include "parallel/collective/network.h"

namespace lockstep::collective {
namespace {

constexpr int kMostNodes = 256;  // of a server: all ways between them are known beforehand
constexpr double kMost = 1e6;    // of GB/s, and of microseconds

}  // namespace

class NetworkFile {
 public:
  NetworkFile(const nlohmann::json& file, const NetworkDefaults& defaults) : file_(file) {
    if (!file.is_object()) throw Error("topology: this is no object");
    check_keys(
        file, "",
        {"links", "devices", "nodes", "uplinks", "GBps", "alpha_us", "start_us", "port_GBps", "memory_GBps"});
    if (!file.contains("links")) throw Error("topology: links is missing");
    speed_ = speed_of(file, "", defaults.link);
    network_.start_ = number(file, "", "start_us", defaults.start_us, true) * 1e-6;
    const nlohmann::json& links = file["links"];
    if (!links.is_array()) throw Error(fmt::format("topology: links is {}: use a list", shown(links)));
    if (!links.empty() && links[0].is_array())
      read_matrix();
    else
      read_links(links);
    read_uplinks();
    network_.limit_devices(number(file, "", "port_GBps", 0, false),
                           number(file, "", "memory_GBps", 0, false));
    network_.find_routes();
  }
  Network result() && { return std::move(network_); }

 private:
  using Json = nlohmann::json;

  static void check_keys(const Json& object, const std::string& where,
                         const std::vector<std::string>& known) {
    for (const auto& [key, unused] : object.items())
      if (std::ranges::find(known, key) == known.end())
        throw unknown_name(where.empty() ? "topology" : "topology: " + where, shown_name(key), known);
  }

  static double number(const Json& object, const std::string& where, const char* key, double otherwise,
                       bool may_be_0) {
    if (!object.contains(key)) return otherwise;
    const Json& value = object[key];
    const bool good = value.is_number() && value.get<double>() <= kMost &&
                      (value.get<double>() > 0 || (may_be_0 && value.get<double>() == 0));
    if (!good)
      throw Error(fmt::format("topology: {}{} is {}: use a number {} 0, up to {:g}",
                              where.empty() ? "" : where + ".", key, shown(value),
                              may_be_0 ? "from" : "above", kMost));
    return value.get<double>();
  }

  static LinkSpeed speed_of(const Json& object, const std::string& where, const LinkSpeed& otherwise) {
    return {number(object, where, "GBps", otherwise.gigabytes_per_second, false),
            number(object, where, "alpha_us", otherwise.alpha_us, true)};
  }

  void name_devices(int devices) {
    network_.devices_ = devices;
    for (int device = 0; device < devices; ++device) network_.names_.push_back(std::to_string(device));
  }

  void read_matrix() {
    for (const char* key : {"devices", "nodes"})
      if (file_.contains(key))
        throw Error(
            fmt::format("topology: {}: a matrix of links has rows for devices alone: leave it out, or "
                        "list the links",
                        key));
    Topology topology = matrix_of(file_["links"]);
    if (topology.ranks > kMostNodes)
      throw Error(fmt::format("topology: {} devices: a server may have 1 to {}", topology.ranks, kMostNodes));
    name_devices(topology.ranks);
    for (int a = 0; a < topology.ranks; ++a)
      for (int b = a + 1; b < topology.ranks; ++b)
        if (topology.links[a][b] > 0) network_.add_link(a, b, speed_, topology.links[a][b], false);
    network_.topology_ = std::move(topology);
  }

  void read_links(const Json& links) {
    if (!file_.contains("devices")) throw Error("topology: devices is missing: how many there are");
    name_devices(static_cast<int>(whole_number(file_["devices"], "topology: devices", 1, kMostNodes)));
    if (file_.contains("nodes")) read_nodes(file_["nodes"]);
    for (size_t i = 0; i < links.size(); ++i) {
      const std::string where = fmt::format("links[{}]", i);
      check_object(links[i], where);
      check_keys(links[i], where, {"from", "to", "GBps", "alpha_us", "count", "shared"});
      const std::vector<int> from = ends(links[i], where, "from"), to = ends(links[i], where, "to");
      const LinkSpeed speed = speed_of(links[i], where, speed_);
      const int64_t count = links[i].contains("count")
                                ? whole_number(links[i]["count"], "topology: " + where + ".count", 1, 1000)
                                : 1;
      const bool shared = links[i].contains("shared");
      if (shared && links[i]["shared"] != Json(true))
        throw Error(fmt::format("topology: {}.shared is {}: use true, or leave it out", where,
                                shown(links[i]["shared"])));
      for (const int a : from)
        for (const int b : to) {
          if (a == b)
            throw Error(
                fmt::format("topology: {}: {} has a link to itself", where, shown_name(network_.names_[a])));
          if (!linked_.insert(std::minmax(a, b)).second)
            throw Error(fmt::format("topology: {}: {} and {} have a link already: use count", where,
                                    shown_name(network_.names_[a]), shown_name(network_.names_[b])));
          network_.add_link(a, b, speed, static_cast<double>(count), shared);
        }
    }
  }

  void read_nodes(const Json& nodes) {
    if (!nodes.is_array())
      throw Error(fmt::format("topology: nodes is {}: use a list of names", shown(nodes)));
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!nodes[i].is_string() || nodes[i].get<std::string>().empty())
        throw Error(fmt::format("topology: nodes[{}] is {}: use a name", i, shown(nodes[i])));
      const auto name = nodes[i].get<std::string>();
      if (std::ranges::find(network_.names_, name) != network_.names_.end())
        throw Error(fmt::format("topology: nodes[{}]: there is a '{}' already", i, shown_name(name)));
      network_.names_.push_back(name);
    }
    if (network_.nodes() > kMostNodes)
      throw Error(
          fmt::format("topology: {} devices and nodes: a server may have {}", network_.nodes(), kMostNodes));
  }

  void read_uplinks() {
    if (!file_.contains("uplinks")) return;
    const Json& uplinks = file_["uplinks"];
    if (!uplinks.is_array() || uplinks.empty())
      throw Error(fmt::format("topology: uplinks is {}: use a list of links",
                              uplinks.empty() ? "empty" : shown(uplinks)));
    network_.has_servers_ = true;
    for (size_t i = 0; i < uplinks.size(); ++i) {
      const std::string where = fmt::format("uplinks[{}]", i);
      check_object(uplinks[i], where);
      check_keys(uplinks[i], where, {"from", "GBps", "alpha_us"});
      LinkSpeed speed = speed_of(uplinks[i], where, speed_);
      speed.alpha_us /= 2;  // a way from server to server passes two
      for (const int from : ends(uplinks[i], where, "from"))
        network_.add_link(from, network_.nodes(), speed, 1, false);
    }
  }

  static void check_object(const Json& value, const std::string& where) {
    if (!value.is_object())
      throw Error(fmt::format("topology: {} is {}: use an object", where, shown(value)));
  }

  // The nodes that link[key] names: a device's number, a node's name, or a list of these.
  std::vector<int> ends(const Json& link, const std::string& where, const char* key) const {
    if (!link.contains(key)) throw Error(fmt::format("topology: {}.{} is missing", where, key));
    const Json& value = link[key];
    if (!value.is_array()) return {node(value, fmt::format("{}.{}", where, key))};
    std::vector<int> nodes;
    for (size_t i = 0; i < value.size(); ++i)
      nodes.push_back(node(value[i], fmt::format("{}.{}[{}]", where, key, i)));
    return nodes;
  }

  int node(const Json& value, const std::string& where) const {
    if (!value.is_string())
      return static_cast<int>(whole_number(value, "topology: " + where, 0, network_.devices_ - 1));
    const auto found = std::ranges::find(network_.names_, value.get<std::string>());
    if (found == network_.names_.end())
      throw unknown_name("topology: " + where, shown_name(value.get<std::string>()), network_.names_);
    return static_cast<int>(found - network_.names_.begin());
  }

  const Json& file_;
  LinkSpeed speed_{};
  std::set<std::pair<int, int>> linked_;
  Network network_;
};

Network Network::parse(const std::string& json, const std::string& name, const NetworkDefaults& defaults) {
  try {
    const nlohmann::json file = parse_json(json);
    return NetworkFile(file, defaults).result();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", printable(name), error.what()));
  }
}

Network Network::read(const std::filesystem::path& file, const NetworkDefaults& defaults) {
  return parse(read_text(file), file.native(), defaults);
}

}  // namespace lockstep::collective
