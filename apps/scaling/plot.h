// Efficiency over the number of devices as an SVG: a line per algorithm, dotted without overlap.
#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

struct EfficiencyPoint {
  std::string algorithm;
  int devices;
  double with_overlap, without;  // 0 .. 1
};

std::string efficiency_plot(const std::vector<EfficiencyPoint>& points, const std::string& title);

}  // namespace lockstep::apps
