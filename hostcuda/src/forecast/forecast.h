// The forecast of a run: its steady step, each of its operations estimated by the model, and the host beside
// the devices.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "hostcuda/src/forecast/model.h"
#include "hostcuda/src/profile/registers.h"
#include "hostcuda/src/profile/results.h"

namespace hostcuda::forecast {

// All operations of a step that have the same name.
struct Row {
  std::string name;
  uint64_t calls = 0;
  double seconds = 0;
  Bound bound = Bound::launch;         // of the dearest
  double dearest = 0;                  // its seconds
  std::optional<KernelCounts> counts;  // its, where it is a kernel of our own
  unsigned grid[3] = {}, block[3] = {};
};

struct Forecast {
  Gpu gpu;
  bool marked = false;         // a step; else the whole run
  size_t steps = 0, like = 0;  // that were marked, and that are like the one that was taken
  int64_t items = 0;
  int devices = 1;
  uint64_t launches = 0, library_calls = 0, copies = 0, calls = 0, events = 0;
  double device_seconds = 0;  // of the busiest
  double host_seconds = 0;
  double memory_bytes = 0;
  uint64_t unrecorded = 0;  // launches of which nothing is known but that they are
  std::vector<Row> rows;    // the dearest first

  double seconds() const { return host_seconds > device_seconds ? host_seconds : device_seconds; }
};

Forecast forecast(const Tally& tally, const std::vector<profile::ShapeProfile>& shapes,
                  const std::map<std::string, profile::Registers>& registers, const Gpu& gpu);

// At most 80 columns wide.
void print(const Forecast& forecast, std::FILE* out);
std::string to_json(const Forecast& forecast);

}  // namespace hostcuda::forecast
