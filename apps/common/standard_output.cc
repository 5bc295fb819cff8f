#include "apps/common/standard_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kernels/check.h"

namespace lockstep::apps {

void reserve_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // gets the lowest number: this one
}

void flush_output() {
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed_before) return;
  throw Error(fmt::format("standard output: cannot write: {}",
                          failed_before ? "an earlier write failed" : std::strerror(errno)));
}

void print_notice(const std::string& line) noexcept {
  std::fflush(stdout);
  std::fputs((line + "\n").c_str(), stderr);
}

}  // namespace lockstep::apps
