// Bandwidth over size as an SVG: both axes logarithmic, a line per algorithm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::apps {

struct BandwidthPoint {
  std::string algorithm;
  int64_t bytes;
  double measured;       // GB/s
  double predicted = 0;  // the same, drawn dotted; 0 where nobody predicts
};

std::string bandwidth_plot(const std::vector<BandwidthPoint>& points, const std::string& title);

}  // namespace lockstep::apps
