#include "apps/allreduce/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/allreduce/sizes.h"
#include "apps/common/line_plot.h"

namespace lockstep::apps {
namespace {

// From a value to its place on a logarithmic axis.
struct LogAxis {
  double low, high;
  double operator()(double value) const {
    return low < high ? std::log(value / low) / std::log(high / low) : 0.5;
  }
};

// Whole decades around all bandwidths.
LogAxis bandwidth_axis(const std::vector<BandwidthPoint>& points) {
  double least = 1e9, most = 1e-9;
  for (const BandwidthPoint& point : points)
    for (const double value : {point.measured, point.predicted})
      if (value > 0) least = std::min(least, value), most = std::max(most, value);
  return {std::pow(10, std::floor(std::log10(least))), std::pow(10, std::ceil(std::log10(most) + 1e-9))};
}

LinePlot::Line& line_named(LinePlot& plot, const std::string& name) {
  const auto known = std::ranges::find(plot.lines, name, &LinePlot::Line::name);
  if (known != plot.lines.end()) return *known;
  plot.lines.push_back({name, {}, {}});
  return plot.lines.back();
}

}  // namespace

std::string bandwidth_plot(const std::vector<BandwidthPoint>& points, const std::string& title) {
  LinePlot plot{.title = title,
                .x_title = "bytes per device",
                .y_title = "busbw, GB/s",
                .note = {},
                .x_ticks = {},
                .y_ticks = {},
                .lines = {}};
  std::vector<int64_t> sizes;
  for (const BandwidthPoint& point : points)
    if (std::ranges::find(sizes, point.bytes) == sizes.end()) sizes.push_back(point.bytes);
  std::ranges::sort(sizes);
  const LogAxis x{static_cast<double>(sizes.front()), static_cast<double>(sizes.back())};
  const LogAxis y = bandwidth_axis(points);
  for (const int64_t size : sizes) plot.x_ticks.push_back({x(static_cast<double>(size)), size_text(size)});
  for (double decade = y.low; decade < y.high * 1.001; decade *= 10)
    for (const int factor : {1, 2, 5})
      if (const double value = decade * factor; value < y.high * 1.001)
        plot.y_ticks.push_back({y(value), fmt::format("{:g}", value), factor == 1});
  for (const BandwidthPoint& point : points) {
    LinePlot::Line& line = line_named(plot, point.algorithm);
    const double at = x(static_cast<double>(point.bytes));
    if (point.measured > 0) line.points.push_back({at, y(point.measured)});
    if (point.predicted > 0) line.dotted.push_back({at, y(point.predicted)});
    if (point.predicted > 0) plot.note = "dotted: predicted";
  }
  return svg_of(plot);
}

}  // namespace lockstep::apps
