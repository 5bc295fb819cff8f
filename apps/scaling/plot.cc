#include "apps/scaling/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/draw/space_time.h"

namespace lockstep::apps {
namespace {

constexpr double kLeft = 64, kTop = 44, kWidth = 560, kHeight = 380, kLegend = 190, kLineHeight = 20;
// As in bandwidth_plot.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
                                    "#000000", "#999999", "#8b4513", "#6a3d9a", "#b22222"};

class Plot {
 public:
  explicit Plot(const std::vector<EfficiencyPoint>& points) : points_(points) {
    for (const EfficiencyPoint& point : points_) {
      if (std::ranges::find(algorithms_, point.algorithm) == algorithms_.end())
        algorithms_.push_back(point.algorithm);
      if (std::ranges::find(devices_, point.devices) == devices_.end()) devices_.push_back(point.devices);
    }
    std::ranges::sort(devices_);
  }

  std::string svg(const std::string& title) {
    const double width = kLeft + kWidth + kLegend, height = kTop + kHeight + 56;
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"white\"/>\n<text x=\"{2}\" y=\"24\" font-size=\"14\">{3}</text>\n",
        width, height, kLeft, escaped(title));
    axes();
    for (size_t a = 0; a < algorithms_.size(); ++a) line(a);
    return text_ + "</svg>\n";
  }

 private:
  double x(int devices) const {
    if (devices_.size() < 2) return kLeft + kWidth / 2;
    return kLeft + kWidth * (std::log2(devices) - std::log2(devices_.front())) /
                       (std::log2(devices_.back()) - std::log2(devices_.front()));
  }
  static double y(double efficiency) { return kTop + kHeight * (1 - efficiency); }

  void axes() {
    for (int percent = 0; percent <= 100; percent += 20)
      text_ += fmt::format(
          "<path d=\"M{} {:.1f}h{}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1f}\" "
          "text-anchor=\"end\">{} %</text>\n",
          kLeft, y(percent / 100.0), kWidth, kLeft - 6, y(percent / 100.0) + 4, percent);
    for (const int devices : devices_)
      text_ += fmt::format(
          "<path d=\"M{:.1f} {}v{}\" stroke=\"#eee\"/><text x=\"{:.1f}\" y=\"{}\" "
          "text-anchor=\"middle\">{}</text>\n",
          x(devices), kTop, kHeight, x(devices), kTop + kHeight + 18, devices);
    text_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">devices</text>\n"
        "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">efficiency</text>\n"
        "<text x=\"{}\" y=\"{}\">dotted: without overlap</text>\n",
        kLeft + kWidth / 2, kTop + kHeight + 42, kTop + kHeight / 2, kLeft + kWidth + 16, kTop + kHeight);
  }

  void line(size_t a) {
    const char* const colour = kColours[a % std::size(kColours)];
    for (const bool overlap : {false, true}) {
      std::string path;
      for (const EfficiencyPoint& point : points_)
        if (point.algorithm == algorithms_[a])
          path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(point.devices),
                              y(overlap ? point.with_overlap : point.without));
      text_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}/>\n", path,
                           colour, overlap ? "2" : "1.5", overlap ? "" : " stroke-dasharray=\"2 4\"");
    }
    const double row = kTop + 12 + kLineHeight * static_cast<double>(a), left = kLeft + kWidth + 16;
    text_ += fmt::format(
        "<path d=\"M{} {}h20\" stroke=\"{}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\">{}</text>\n", left,
        row, colour, left + 28, row + 4, escaped(algorithms_[a]));
  }

  const std::vector<EfficiencyPoint>& points_;
  std::vector<std::string> algorithms_;
  std::vector<int> devices_;
  std::string text_;
};

}  // namespace

std::string efficiency_plot(const std::vector<EfficiencyPoint>& points, const std::string& title) {
  return Plot(points).svg(title);
}

}  // namespace lockstep::apps
