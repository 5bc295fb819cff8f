#include "apps/common/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/printable.h"
#include "kernels/check.h"

namespace lockstep::apps {
namespace {

void refuse_dash(const std::filesystem::path& path) {
  if (path == "-")
    throw Error(
        "-: is no standard output here, where the program prints what it does: name a file, such as ./-");
}

}  // namespace

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

void check_can_be_written(const std::filesystem::path& path) {
  refuse_dash(path);
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown))
    throw Error(fmt::format("{}: is a folder, expected a file to write", printable(path.native())));
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    throw Error(fmt::format("{}: cannot write into {}: {}", printable(path.native()),
                            printable(folder.native()), std::strerror(errno)));
}

void check_other_file(const std::filesystem::path& out, const std::filesystem::path& in) {
  refuse_dash(out);
  std::error_code not_there;
  if (std::filesystem::equivalent(out, in, not_there))
    throw Error(fmt::format("{}: is the file to read, too: write to another one", printable(out.native())));
}

}  // namespace lockstep::apps
