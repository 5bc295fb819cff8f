#include "apps/scaling/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/common/line_plot.h"

namespace lockstep::apps {

std::string efficiency_plot(const std::vector<EfficiencyPoint>& points, const std::string& title) {
  LinePlot plot{.title = title,
                .x_title = "devices",
                .y_title = "efficiency",
                .note = "dotted: without overlap",
                .x_ticks = {},
                .y_ticks = {},
                .lines = {}};
  std::vector<int> devices;
  for (const EfficiencyPoint& point : points)
    if (std::ranges::find(devices, point.devices) == devices.end()) devices.push_back(point.devices);
  std::ranges::sort(devices);
  const auto x = [&](int count) {
    const double low = std::log2(devices.front()), high = std::log2(devices.back());
    return low < high ? (std::log2(count) - low) / (high - low) : 0.5;
  };
  for (const int count : devices) plot.x_ticks.push_back({x(count), std::to_string(count)});
  for (int percent = 0; percent <= 100; percent += 20)
    plot.y_ticks.push_back({percent / 100.0, fmt::format("{} %", percent)});
  for (const EfficiencyPoint& point : points) {
    auto line = std::ranges::find(plot.lines, point.algorithm, &LinePlot::Line::name);
    if (line == plot.lines.end()) line = plot.lines.insert(line, {point.algorithm, {}, {}});
    line->points.push_back({x(point.devices), point.with_overlap});
    line->dotted.push_back({x(point.devices), point.without});
  }
  return svg_of(plot);
}

}  // namespace lockstep::apps
