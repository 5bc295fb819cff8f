#include "apps/allreduce/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/allreduce/sizes.h"

namespace lockstep::apps {
namespace {

constexpr double kLeft = 64, kTop = 44, kWidth = 560, kHeight = 380, kLegend = 190, kLineHeight = 20;
// Colours that people who see fewer of them can tell apart too (Okabe and Ito, 2008), each with a marker.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
                                    "#56b4e9", "#000000", "#999999", "#8b4513", "#6a3d9a"};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

class Plot {
 public:
  Plot(const std::vector<BandwidthPoint>& points, std::string title)
      : points_(points), title_(std::move(title)) {
    for (const BandwidthPoint& point : points_) {
      if (std::find(algorithms_.begin(), algorithms_.end(), point.algorithm) == algorithms_.end())
        algorithms_.push_back(point.algorithm);
      if (std::find(sizes_.begin(), sizes_.end(), point.bytes) == sizes_.end()) sizes_.push_back(point.bytes);
      for (const double value : {point.measured, point.predicted})
        if (value > 0) least_ = std::min(least_, value), most_ = std::max(most_, value);
    }
    std::sort(sizes_.begin(), sizes_.end());
    least_ = std::pow(10, std::floor(std::log10(least_)));
    most_ = std::pow(10, std::ceil(std::log10(most_) + 1e-9));
  }

  std::string svg() {
    const double width = kLeft + kWidth + kLegend, height = kTop + kHeight + 56;
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"white\"/>\n"
        "<text x=\"{2}\" y=\"24\" font-size=\"14\">{3}</text>\n",
        width, height, kLeft, escaped(title_));
    axes();
    for (size_t a = 0; a < algorithms_.size(); ++a) line(a);
    return text_ + "</svg>\n";
  }

 private:
  double x(int64_t bytes) const {
    if (sizes_.size() < 2) return kLeft + kWidth / 2;
    const double low = std::log2(sizes_.front()), high = std::log2(sizes_.back());
    return kLeft + kWidth * (std::log2(bytes) - low) / (high - low);
  }
  double y(double value) const {
    return kTop + kHeight * (1 - std::log10(value / least_) / std::log10(most_ / least_));
  }

  void axes() {
    for (double decade = least_; decade <= most_ * 1.001; decade *= 10)
      for (const int factor : {1, 2, 5}) {
        const double value = decade * factor;
        if (value > most_ * 1.001) break;
        text_ += fmt::format(
            "<path d=\"M{} {:.1f}h{}\" stroke=\"{}\"/><text x=\"{}\" y=\"{:.1f}\" "
            "text-anchor=\"end\">{:g}</text>\n",
            kLeft, y(value), kWidth, factor == 1 ? "#bbb" : "#eee", kLeft - 6, y(value) + 4, value);
      }
    for (const int64_t size : sizes_)
      text_ += fmt::format(
          "<path d=\"M{:.1f} {}v{}\" stroke=\"#eee\"/><text x=\"{:.1f}\" y=\"{}\" "
          "text-anchor=\"middle\">{}</text>\n",
          x(size), kTop, kHeight, x(size), kTop + kHeight + 18, size_text(size));
    text_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">bytes per device</text>\n"
        "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">busbw, GB/s</text>\n",
        kLeft + kWidth / 2, kTop + kHeight + 42, kTop + kHeight / 2);
  }

  void line(size_t a) {
    const char* const colour = kColours[a % std::size(kColours)];
    for (const bool predicted : {false, true}) {
      std::string path;
      for (const BandwidthPoint& point : points_) {
        const double value = predicted ? point.predicted : point.measured;
        if (point.algorithm != algorithms_[a] || value <= 0) continue;
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(point.bytes), y(value));
        if (!predicted)
          text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x(point.bytes),
                               y(value), colour);
      }
      if (!path.empty())
        text_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}/>\n", path,
                             colour, predicted ? "1.5" : "2", predicted ? " stroke-dasharray=\"2 4\"" : "");
    }
    const double row = kTop + 12 + kLineHeight * static_cast<double>(a), left = kLeft + kWidth + 16;
    text_ += fmt::format(
        "<path d=\"M{} {}h20\" stroke=\"{}\" stroke-width=\"2\"/><circle cx=\"{}\" cy=\"{}\" r=\"3\" "
        "fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>\n",
        left, row, colour, left + 10, row, colour, left + 28, row + 4, escaped(algorithms_[a]));
  }

  const std::vector<BandwidthPoint>& points_;
  const std::string title_;
  std::vector<std::string> algorithms_;
  std::vector<int64_t> sizes_;
  double least_ = 1e9, most_ = 1e-9;
  std::string text_;
};

}  // namespace

std::string bandwidth_plot(const std::vector<BandwidthPoint>& points, const std::string& title) {
  return Plot(points, title).svg();
}

}  // namespace lockstep::apps
