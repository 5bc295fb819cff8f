#include "tests/apps/program.h"

#include <fcntl.h>
#include <poll.h>
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

}  // namespace

Outcome run_program(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                    const std::string& interrupt_after, int signal) {
  std::array<int, 2> out{}, error{};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(error.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("pipe failed");
  const pid_t child = start(command, environment, out[1], error[1]);
  close(out[1]);
  close(error[1]);

  Outcome outcome{};
  bool interrupted = interrupt_after.empty();
  std::array<pollfd, 2> ends{{{out[0], POLLIN, 0}, {error[0], POLLIN, 0}}};
  for (int open = 2; open > 0;) {
    poll(ends.data(), ends.size(), -1);
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
      if (!interrupted && outcome.out.find(interrupt_after) != std::string::npos) {
        kill(child, signal);
        interrupted = true;
      }
    }
  }
  outcome.exit_code = exit_code_of(child);
  return outcome;
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
