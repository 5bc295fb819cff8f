#include "apps/draw/space_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <vector>

#include "apps/common/line_plot.h"
#include "apps/draw/slice_names.h"
#include "kernels/check.h"

namespace lockstep::apps {
namespace {

using collective::Action;
using collective::Plan;
using collective::Transfer;

constexpr int kMostRoundsDrawn = 400;
constexpr size_t kMostTransfersDrawn = 5000, kMostInLegend = 26;
constexpr const char* kRed = "#d00000";

struct Point {
  double x, y;
};

class Picture {
 public:
  Picture(const Plan& plan, const std::string& title, const std::optional<collective::Violation>& violation)
      : plan_(plan), title_(title), violation_(violation), names_(plan), rounds_(cost_of(plan).rounds) {
    if (plan.ranks > kMostRanksDrawn || rounds_ > kMostRoundsDrawn ||
        plan.transfers.size() > kMostTransfersDrawn)
      throw Error(
          fmt::format("{} ranks, {} rounds and {} transfers are too many for a picture: there may be {}, "
                      "{} and {}",
                      plan.ranks, rounds_, plan.transfers.size(), kMostRanksDrawn, kMostRoundsDrawn,
                      kMostTransfersDrawn));
    step_ = plan.ranks <= 4 ? 110 : plan.ranks <= 8 ? 84 : plan.ranks <= 16 ? 60 : 44;
    row_ = rounds_ <= 12 ? 44 : 32;
    for (const Transfer& t : plan.transfers) ++sent_[{t.round, t.source}];
  }

  std::string svg() {
    ranks_and_rounds();
    for (size_t i = 0; i < plan_.transfers.size(); ++i) {
      const int round = plan_.transfers[i].round;
      if (i == 0 || plan_.transfers[i - 1].round != round)
        body_ += fmt::format("<g class=\"round\" data-round=\"{}\">\n", round);
      arrow(plan_.transfers[i], violation_ && violation_->transfer == static_cast<int>(i));
      if (i + 1 < plan_.transfers.size() && plan_.transfers[i + 1].round == round) continue;
      body_ +=
          "<g text-anchor=\"middle\" stroke=\"#fff\" stroke-width=\"4\" paint-order=\"stroke\" "
          "font-size=\"11\">\n" +
          labels_ + "</g></g>\n";  // last: no arrow crosses them out
      labels_.clear();
    }
    legend();
    fault();
    const double width = this->width(), height = bottom_ + 8;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{3}</svg>\n",
        width, height, escaped(title_), body_);
  }

 private:
  static constexpr double kLeft = 96, kTop = 62;

  double x_of(int rank) const { return kLeft + rank * step_; }
  double y_of(int round) const { return kTop + round * row_; }
  double width() const { return std::max(x_of(plan_.ranks - 1) + 40, 340.0); }

  void text(const Point& at, const std::string& text, const char* more = "") {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", at.x, at.y, more, escaped(text));
  }

  void ranks_and_rounds() {
    text({12, 20}, title_, " font-weight=\"bold\"");
    for (int round = 0; round < rounds_; ++round) {
      if (round % 2 == 0)
        body_ += fmt::format("<rect x=\"0\" y=\"{:.1f}\" width=\"100%\" height=\"{}\" fill=\"#f3f3f3\"/>\n",
                             y_of(round), row_);
      text({12, y_of(round) + row_ / 2 + 4}, fmt::format("round {}", round), " fill=\"#555\"");
    }
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const bool wrong = violation_ && violation_->rank == rank;
      const std::string name = plan_.ranks <= 16 ? fmt::format("rank {}", rank) : std::to_string(rank);
      text({x_of(rank), kTop - 12}, name, " text-anchor=\"middle\"");
      body_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" "
          "stroke-width=\"{4}\"/>\n",
          x_of(rank), kTop - 6, y_of(rounds_) + 6, wrong ? kRed : "#999", wrong ? 3 : 1);
    }
    bottom_ = y_of(rounds_) + 6;
  }

  void arrow(const Transfer& t, bool wrong) {
    const Point from{x_of(t.source), y_of(t.round) + 5}, to{x_of(t.destination), y_of(t.round + 1) - 5};
    const double length = std::hypot(to.x - from.x, to.y - from.y);
    const Point along{(to.x - from.x) / length, (to.y - from.y) / length};
    const auto at = [&](double distance, double aside) {
      return Point{from.x + along.x * distance - along.y * aside,
                   from.y + along.y * distance + along.x * aside};
    };
    const Point neck = at(length - 9, 0), left = at(length - 10, 4), right = at(length - 10, -4);
    const std::string colour = wrong ? kRed : names_.colour(t.slice);
    body_ += fmt::format(
        "<g><title>{}</title><line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"{}\"{}/>",
        escaped(to_string(t)), from.x, from.y, neck.x, neck.y, colour, wrong ? 4 : 2,
        t.action == Action::copy ? " stroke-dasharray=\"6 4\"" : "");
    body_ += fmt::format("<polygon points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"{}\"/>", to.x,
                         to.y, left.x, left.y, right.x, right.y, colour);
    if (names_.pieces() > 1) {
      // Near the source, where arrows do not cross yet; but where one rank sends several, near their ends.
      const bool several = sent_[{t.round, t.source}] > 1;
      const Point place = at(several ? length - 26 : std::min(26.0, length * 0.45), 0);
      labels_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", place.x, place.y + 4,
                             colour, names_.name(t.slice));
    }
    body_ += "</g>\n";
  }

  void legend() {
    double y = bottom_ + 20;
    body_ += fmt::format(
        "<line x1=\"12\" y1=\"{0:.1f}\" x2=\"42\" y2=\"{0:.1f}\" stroke=\"#333\" stroke-width=\"2\"/>\n",
        y - 4);
    text({48, y}, "add");
    body_ += fmt::format(
        "<line x1=\"84\" y1=\"{0:.1f}\" x2=\"114\" y2=\"{0:.1f}\" stroke=\"#333\" stroke-width=\"2\" "
        "stroke-dasharray=\"6 4\"/>\n",
        y - 4);
    text({120, y}, "copy");
    text({160, y}, names_.pieces() == 1 ? fmt::format("always all {} elements", plan_.count)
                                        : fmt::format("slices of {} elements:", plan_.count));
    if (names_.pieces() > 1 && names_.pieces() <= kMostInLegend) {
      double x = 12;
      y += 20;
      for (size_t i = 0; i < names_.pieces(); ++i) {
        const collective::Slice piece{names_.cuts()[i], names_.cuts()[i + 1]};
        const std::string label = fmt::format("{}: [{}, {})", names_.name(piece), piece.begin, piece.end);
        const double needed = 18 + 7 * static_cast<double>(label.size());
        if (x > 12 && x + needed > width()) {
          x = 12;
          y += 18;
        }
        body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", x,
                             y - 10, names_.colour(piece));
        text({x + 14, y}, label);
        x += needed;
      }
    }
    bottom_ = y + 4;
  }

  // In lines that fit.
  void fault() {
    if (!violation_) return;
    std::istringstream words("Wrong: " + violation_->what);
    std::string line;
    const auto most = static_cast<size_t>((width() - 24) / 6.6);
    const auto end_line = [&] {
      bottom_ += 17;
      text({12, bottom_}, line, " fill=\"#d00000\"");
      line.clear();
    };
    for (std::string word; words >> word; line += (line.empty() ? "" : " ") + word)
      if (line.size() + 1 + word.size() > most) end_line();
    end_line();
  }

  const Plan& plan_;
  const std::string& title_;
  const std::optional<collective::Violation>& violation_;
  const SliceNames names_;
  const int rounds_;
  double step_, row_, bottom_ = 0;
  std::map<std::pair<int, int>, int> sent_;  // by round and source: how many transfers
  std::string body_, labels_;
};

}  // namespace

std::string space_time_svg(const Plan& plan, const std::string& title,
                           const std::optional<collective::Violation>& violation) {
  return Picture(plan, title, violation).svg();
}

}  // namespace lockstep::apps
