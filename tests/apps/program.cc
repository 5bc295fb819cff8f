#include "tests/apps/program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>

namespace lockstep::apps {
namespace {

constexpr unsigned kDeadlineSeconds = 120;

// A child that writes to these two ends of pipes or files, which stay open here.
pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment, int out,
            int error) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  alarm(kDeadlineSeconds);  // survives exec
  dup2(out, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  for (const std::string& setting : environment) {
    const size_t equals = setting.find('=');
    setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

int exit_code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Reads what a child prints until it closes both ends, and signals it when that is asked for.
Outcome watch(pid_t child, int out, int error, const std::function<bool(const std::string& out)>& when,
              const std::vector<int>& signals) {
  Outcome outcome{};
  bool signalled = !when;
  std::array<pollfd, 2> ends{{{out, POLLIN, 0}, {error, POLLIN, 0}}};
  for (int open = 2; open > 0;) {
    constexpr int kMilliseconds = 10;
    poll(ends.data(), ends.size(), signalled ? -1 : kMilliseconds);
    if (!signalled && when(outcome.out)) {
      for (const int signal : signals) kill(child, signal);
      signalled = true;
    }
    for (pollfd& end : ends) {
      if (end.fd < 0 || end.revents == 0) continue;
      std::array<char, 4096> buffer{};
      const ssize_t got = read(end.fd, buffer.data(), buffer.size());
      if (got <= 0) {
        close(end.fd);
        end.fd = -1;
        --open;
        continue;
      }
      (&end == &ends[0] ? outcome.out : outcome.error).append(buffer.data(), static_cast<size_t>(got));
    }
  }
  outcome.exit_code = exit_code_of(child);
  return outcome;
}

}  // namespace

Outcome run_program(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                    const std::string& interrupt_after, int signal) {
  if (interrupt_after.empty()) return run_and_signal(command, environment, nullptr, {});
  const auto printed = [&](const std::string& out) { return out.find(interrupt_after) != out.npos; };
  return run_and_signal(command, environment, printed, {signal});
}

Outcome run_and_signal(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                       const std::function<bool(const std::string& out)>& when,
                       const std::vector<int>& signals) {
  std::array<int, 2> out{}, error{};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(error.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("pipe failed");
  const pid_t child = start(command, environment, out[1], error[1]);
  close(out[1]);
  close(error[1]);
  return watch(child, out[0], error[0], when, signals);
}

Outcome run_in_terminal(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                        const std::function<bool(const std::string& out)>& when,
                        const std::vector<int>& signals) {
  constexpr winsize kSize{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  int screen = -1, terminal = -1;
  std::array<int, 2> error{};
  if (openpty(&screen, &terminal, nullptr, nullptr, &kSize) != 0 || pipe2(error.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("there is no terminal");
  fcntl(screen, F_SETFD, FD_CLOEXEC);
  fcntl(terminal, F_SETFD, FD_CLOEXEC);
  const pid_t child = start(command, environment, terminal, error[1]);
  close(terminal);
  close(error[1]);
  return watch(child, screen, error[0], when, signals);
}

int run_and_kill(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                 unsigned microseconds) {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const pid_t child = start(command, environment, nowhere, nowhere);
  close(nowhere);
  usleep(microseconds);
  kill(child, SIGKILL);
  return exit_code_of(child);
}

int count_lines(const std::string& text) {
  const auto ends = std::count(text.begin(), text.end(), '\n');
  return static_cast<int>(ends) + (text.empty() || text.back() == '\n' ? 0 : 1);
}

}  // namespace lockstep::apps
