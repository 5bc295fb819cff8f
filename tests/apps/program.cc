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

}  // namespace

Outcome run_program(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                    const std::string& interrupt_after) {
  std::array<int, 2> out{}, error{};
  if (pipe(out.data()) != 0 || pipe(error.data()) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    alarm(kDeadlineSeconds);  // survives exec
    dup2(out[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    for (const int end : {out[0], out[1], error[0], error[1]}) close(end);
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
        kill(child, SIGINT);
        interrupted = true;
      }
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

int count_lines(const std::string& text) {
  const auto ends = std::count(text.begin(), text.end(), '\n');
  return static_cast<int>(ends) + (text.empty() || text.back() == '\n' ? 0 : 1);
}

}  // namespace lockstep::apps
