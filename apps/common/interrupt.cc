#include "apps/common/interrupt.h"

#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace lockstep::apps {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
constexpr int64_t kSameMilliseconds = 500;

// When the first one came; 0 before. Threads may be in the handler at the same time.
std::atomic<int64_t> asked_at{0};
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler must not wait for a lock");
std::string notice_line;  // complete before the handler is installed

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Calls what is safe in a signal handler alone.
extern "C" void on_signal(int signal) {
  const int before = errno;
  const int64_t now = milliseconds();
  int64_t first = 0;
  if (asked_at.compare_exchange_strong(first, now)) {
    // Where it cannot be written, the run stops all the same.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, notice_line.data(), notice_line.size());
  } else if (now - first >= kSameMilliseconds) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // delivered when this returns
  }
  errno = before;
}

}  // namespace

void catch_interrupts(const std::string& notice) {
  notice_line = (isatty(STDERR_FILENO) == 1 ? "\n" : "") + notice + "\n";  // after a terminal's ^C
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) sigaddset(&action.sa_mask, signal);
  for (const int signal : kSignals) {
    struct sigaction found{};
    if (sigaction(signal, nullptr, &found) == 0 && found.sa_handler != SIG_IGN)
      sigaction(signal, &action, nullptr);
  }
}

bool interrupted() {
  return asked_at != 0;
}

}  // namespace lockstep::apps
