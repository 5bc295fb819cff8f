#include "hostcuda/src/forecast/forecast.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "hostcuda/src/forecast/counts.h"

namespace hostcuda::forecast {

namespace {

using Place = std::tuple<std::string, std::string, int, std::tuple<unsigned, unsigned, unsigned>,
                         std::tuple<unsigned, unsigned, unsigned>, size_t>;

Place place_of(const profile::ShapeProfile& shape) {
  return {shape.name,
          shape.site.file,
          shape.site.line,
          {shape.grid.x, shape.grid.y, shape.grid.z},
          {shape.block.x, shape.block.y, shape.block.z},
          shape.shared_bytes};
}

std::string name_of(const Operation& operation) {
  if (operation.kind != Operation::Kind::kernel) return operation.name;
  KernelLaunch launch{};
  launch.kernel = operation.kernel;
  if (!operation.name.empty()) launch.name = operation.name.c_str();
  return profile::name_of(launch);
}

Place place_of(const Operation& operation) {
  return {name_of(operation),
          operation.site.file,
          operation.site.line,
          {operation.grid[0], operation.grid[1], operation.grid[2]},
          {operation.block[0], operation.block[1], operation.block[2]},
          operation.shared_bytes};
}

// The step that most are like; of several the last. A first one may prepare what the others use.
const TallyStep* steady_step(const Tally& tally, size_t* like) {
  std::map<std::vector<int>, size_t> counts;
  const TallyStep* best = nullptr;
  *like = 0;
  for (const TallyStep& step : tally.steps) {
    const size_t count = ++counts[step.operations];
    if (count < *like) continue;
    *like = count;
    best = &step;
  }
  return best;
}

}  // namespace

Forecast forecast(const Tally& tally, const std::vector<profile::ShapeProfile>& shapes,
                  const std::map<std::string, profile::Registers>& registers, const Gpu& gpu) {
  Forecast result;
  result.gpu = gpu;
  result.steps = tally.steps.size();
  result.memory_bytes = static_cast<double>(tally.memory);
  const TallyStep* const marked = steady_step(tally, &result.like);
  result.marked = marked != nullptr;
  const TallyStep& step = marked != nullptr ? *marked : tally.rest;
  result.items = step.items;
  result.calls = step.calls.size();
  result.events = step.events;

  std::map<Place, const profile::ShapeProfile*> known;
  for (const profile::ShapeProfile& shape : shapes) known[place_of(shape)] = &shape;
  std::map<std::string, Row> rows;
  std::map<int, double> devices;
  for (const int number : step.operations) {
    const Operation& operation = tally.operations[static_cast<size_t>(number)];
    const std::string name = name_of(operation);
    Estimate estimated = estimate(operation, gpu);
    std::optional<KernelCounts> counts;
    if (operation.kind == Operation::Kind::kernel) {
      ++result.launches;
      const auto shape = known.find(place_of(operation));
      if (shape != known.end() && shape->second->recorded_blocks > 0) {
        const auto told = registers.find(name);
        counts = counts_of(*shape->second, operation.operations,
                           told == registers.end() ? profile::Registers{} : told->second);
        estimated = estimate(*counts, gpu);
      } else {
        ++result.unrecorded;
      }
    } else if (operation.kind == Operation::Kind::product || operation.kind == Operation::Kind::convolution) {
      ++result.library_calls;
    } else if (operation.kind == Operation::Kind::copy || operation.kind == Operation::Kind::fill) {
      ++result.copies;
    } else {
      continue;  // a graph's launch, which is the host's
    }
    devices[operation.device] += estimated.seconds;
    Row& row = rows[name];
    row.name = name;
    ++row.calls;
    row.seconds += estimated.seconds;
    if (estimated.seconds > row.dearest) {
      row.dearest = estimated.seconds;
      row.bound = estimated.bound;
      row.counts = counts;
      std::copy_n(operation.grid, 3, row.grid);
      std::copy_n(operation.block, 3, row.block);
    }
  }
  for (const auto& [device, seconds] : devices)
    result.device_seconds = std::max(result.device_seconds, seconds);
  result.devices = std::max(1, static_cast<int>(devices.size()));
  for (const int number : step.calls)
    result.host_seconds += host_seconds(tally.operations[static_cast<size_t>(number)], gpu);
  result.host_seconds += static_cast<double>(step.events) * event_seconds(gpu);
  for (auto& [name, row] : rows) result.rows.push_back(row);
  std::stable_sort(result.rows.begin(), result.rows.end(),
                   [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return result;
}

}  // namespace hostcuda::forecast
