#include "apps/common/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

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
  const auto total = static_cast<int64_t>(seconds + 0.5);
  if (total >= 3600) return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

Progress::Progress(std::string label, int64_t done, int64_t steps, bool quiet)
    : label_(std::move(label)),
      first_(done),
      steps_(steps),
      quiet_(quiet),
      terminal_(isatty(STDOUT_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stdout);
  std::fflush(stdout);
}

bool Progress::due() const {
  return !quiet_ && Clock::now() - last_ >= (terminal_ ? kTerminalPause : kLinePause);
}

void Progress::show(int64_t step, double images_per_second, double loss) {
  if (quiet_) return;
  last_ = Clock::now();
  const double elapsed = std::chrono::duration<double>(last_ - start_).count();
  const double seconds_a_step = elapsed / static_cast<double>(std::max<int64_t>(step - first_, 1));
  const std::string figures =
      fmt::format(" {:3.0f}%  {:.0f} images/s  loss {:.4f}  {} left",
                  100.0 * static_cast<double>(step) / static_cast<double>(steps_), images_per_second, loss,
                  format_seconds(seconds_a_step * static_cast<double>(steps_ - step)));
  if (!terminal_) {
    fmt::print("{}{}\n", label_, figures);
    std::fflush(stdout);
    return;
  }
  const int room = terminal_columns() - static_cast<int>(label_.size() + figures.size()) - 4;
  std::string bar;
  if (room >= 8) {
    const int width = std::min(room, 40);
    const auto filled = static_cast<int>(width * step / steps_);
    bar = fmt::format(" [{}{}]", std::string(static_cast<size_t>(filled), '='),
                      std::string(static_cast<size_t>(width - filled), ' '));
  }
  fmt::print("\r\033[K{}{}{}", label_, bar, figures);
  std::fflush(stdout);
  drawn_ = true;
}

}  // namespace lockstep::apps
