// Lines in two axes as an SVG, with a legend; and what any SVG or HTML page needs.
#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

struct LinePlot {
  struct Point {
    double x, y;  // 0 .. 1 of the width and of the height
  };
  struct Tick {
    double at;  // 0 .. 1
    std::string text;
    bool strong = false;
  };
  struct Line {
    std::string name;
    std::vector<Point> points, dotted;
  };
  std::string title, x_title, y_title;
  std::string note;  // below the legend
  std::vector<Tick> x_ticks, y_ticks;
  std::vector<Line> lines;
};

std::string svg_of(const LinePlot& plot);

// `text` as it stands in XML and HTML.
std::string escaped(const std::string& text);

}  // namespace lockstep::apps
