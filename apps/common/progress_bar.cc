#include "apps/common/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "apps/common/output.h"

namespace lockstep::apps {
namespace {

constexpr std::chrono::milliseconds kTerminalPause{200};
constexpr std::chrono::seconds kLinePause{10};

int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string format_seconds(double seconds) {
  const auto total = std::llround(seconds);
  if (total >= 3600) return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

ProgressBar::ProgressBar(std::string label, int64_t done, int64_t total, bool quiet)
    : label_(std::move(label)),
      first_(done),
      total_(total),
      quiet_(quiet),
      terminal_(isatty(STDOUT_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

ProgressBar::~ProgressBar() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stdout);
  std::fflush(stdout);
}

bool ProgressBar::due() const {
  return !quiet_ && Clock::now() - last_ >= (terminal_ ? kTerminalPause : kLinePause);
}

void ProgressBar::show(int64_t done, const std::string& figures) {
  if (quiet_) return;
  last_ = Clock::now();
  const double each = seconds() / static_cast<double>(std::max<int64_t>(done - first_, 1));
  const std::string text =
      fmt::format(" {:3.0f}%  {}  {} left", 100.0 * static_cast<double>(done) / static_cast<double>(total_),
                  figures, format_seconds(each * static_cast<double>(total_ - done)));
  if (!terminal_) {
    fmt::print("{}{}\n", label_, text);
    flush_output();
    return;
  }
  const int columns = terminal_columns();
  const int room = columns - static_cast<int>(label_.size() + text.size()) - 4;
  std::string bar;
  if (room >= 8) {
    const int width = std::min(room, 40);
    const auto filled = static_cast<int>(width * done / total_);
    bar = fmt::format(" [{}{}]", std::string(static_cast<size_t>(filled), '='),
                      std::string(static_cast<size_t>(width - filled), ' '));
  }
  // A line that wraps could not be redrawn.
  fmt::print("\r\033[K{:.{}}", label_ + bar + text, columns - 1);
  flush_output();
  drawn_ = true;
}

}  // namespace lockstep::apps
