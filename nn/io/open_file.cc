#include "nn/io/open_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/printable.h"
#include "kernels/check.h"

namespace lockstep::data {
namespace {

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a device";
}

}  // namespace

File open_file(const std::filesystem::path& path) {
  const auto fail = [&path] {
    throw Error(fmt::format("{}: cannot open: {}", printable(path.native()), std::strerror(errno)));
  };
  // Opened first and asked afterwards, so that both are of one file; O_NONBLOCK, as a FIFO would wait for a
  // writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) fail();
  File file(fdopen(descriptor, "rb"));
  if (!file) {
    close(descriptor);
    fail();
  }
  struct stat found;
  if (fstat(descriptor, &found) != 0) fail();
  if (!S_ISREG(found.st_mode))
    throw Error(fmt::format("{}: found {}, expected a regular file", printable(path.native()),
                            kind_of(found.st_mode)));
  return file;
}

}  // namespace lockstep::data
