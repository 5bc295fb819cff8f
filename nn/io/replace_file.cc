// The order matters: the content reaches the disk before the name does (fsync, rename), and the name before
// the caller goes on (fsync of the folder).
#include "nn/io/replace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "core/printable.h"
#include "kernels/check.h"

namespace lockstep::data {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw Error(fmt::format("{}: cannot write: {}", printable(path.native()), std::strerror(errno)));
}

// Goes away with this object, unless it has been renamed.
class PartialFile {
 public:
  explicit PartialFile(const std::filesystem::path& path)
      : path_(path), partial_(fmt::format("{}.{}.partial", path.string(), getpid())) {
    file_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file_ < 0) fail(path_);
  }
  ~PartialFile() {
    if (file_ >= 0) close(file_);
    if (!renamed_) unlink(partial_.c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(file_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(path_);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
  }

  void rename() {
    if (fsync(file_) != 0 || close(std::exchange(file_, -1)) != 0) fail(path_);
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail(path_);
    renamed_ = true;
  }

 private:
  const std::filesystem::path& path_;
  std::string partial_;
  int file_ = -1;
  bool renamed_ = false;
};

void sync_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail(path);
  const int status = fsync(file);
  const int why = errno;
  close(file);
  errno = why;
  if (status != 0 && errno != EINVAL) fail(path);  // EINVAL: a file system that cannot sync folders
}

}  // namespace

void replace_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts) {
  PartialFile file(path);
  for (const auto part : parts) file.write(part);
  file.rename();
  sync_folder(path);
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  replace_file(path, std::span(&part, 1));
}

}  // namespace lockstep::data
