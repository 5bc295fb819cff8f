#include "apps/common/line_plot.h"

#include <fmt/format.h>

#include <iterator>

namespace lockstep::apps {
namespace {

constexpr double kLeft = 64, kTop = 44, kWidth = 560, kHeight = 380, kLegend = 190, kLineHeight = 20;
// The first seven: colours that people who see fewer of them can tell apart too (Okabe and Ito, 2008).
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
                                    "#000000", "#999999", "#8b4513", "#6a3d9a", "#b22222"};

double x_of(double share) {
  return kLeft + kWidth * share;
}
double y_of(double share) {
  return kTop + kHeight * (1 - share);
}

std::string axes(const LinePlot& plot) {
  std::string text;
  for (const LinePlot::Tick& tick : plot.y_ticks)
    text += fmt::format(
        "<path d=\"M{} {:.1f}h{}\" stroke=\"{}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        kLeft, y_of(tick.at), kWidth, tick.strong ? "#bbb" : "#eee", kLeft - 6, y_of(tick.at) + 4,
        escaped(tick.text));
  for (const LinePlot::Tick& tick : plot.x_ticks)
    text += fmt::format(
        "<path d=\"M{:.1f} {}v{}\" stroke=\"#eee\"/><text x=\"{:.1f}\" y=\"{}\" "
        "text-anchor=\"middle\">{}</text>\n",
        x_of(tick.at), kTop, kHeight, x_of(tick.at), kTop + kHeight + 18, escaped(tick.text));
  return text + fmt::format(
                    "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
                    "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n"
                    "<text x=\"{}\" y=\"{}\">{}</text>\n",
                    kLeft + kWidth / 2, kTop + kHeight + 42, escaped(plot.x_title), kTop + kHeight / 2,
                    escaped(plot.y_title), kLeft + kWidth + 16, kTop + kHeight, escaped(plot.note));
}

std::string path_of(const std::vector<LinePlot::Point>& points, const char* colour, bool dotted) {
  std::string path;
  for (const LinePlot::Point& point : points)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x_of(point.x), y_of(point.y));
  if (path.empty()) return "";
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}/>\n", path, colour,
                     dotted ? "1.5" : "2", dotted ? " stroke-dasharray=\"2 4\"" : "");
}

std::string line_with_legend(const LinePlot::Line& line, size_t index) {
  const char* const colour = kColours[index % std::size(kColours)];
  std::string text = path_of(line.points, colour, false) + path_of(line.dotted, colour, true);
  for (const LinePlot::Point& point : line.points)
    text += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x_of(point.x),
                        y_of(point.y), colour);
  const double row = kTop + 12 + kLineHeight * static_cast<double>(index), left = kLeft + kWidth + 16;
  return text +
         fmt::format(
             "<path d=\"M{} {}h20\" stroke=\"{}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
             left, row, colour, left + 28, row + 4, escaped(line.name));
}

}  // namespace

std::string svg_of(const LinePlot& plot) {
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"14\">{3}</text>\n",
      kLeft + kWidth + kLegend, kTop + kHeight + 56, kLeft, escaped(plot.title));
  text += axes(plot);
  for (size_t i = 0; i < plot.lines.size(); ++i) text += line_with_legend(plot.lines[i], i);
  return text + "</svg>\n";
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  return safe;
}

}  // namespace lockstep::apps
