#include "nn/io/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "core/printable.h"
#include "kernels/check.h"
#include "nn/io/open_file.h"

namespace lockstep::nn {
namespace {

struct Owner {
  int64_t process = 0;  // 0: not known
  std::string machine;
};

std::string this_machine() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "unnamed";
}

// From "PROCESS MACHINE\n". A writer that has only just made the file has not written it yet.
Owner read_owner(int file) {
  std::array<char, 512> text{};
  Owner owner;
  if (pread(file, text.data(), text.size() - 1, 0) <= 0) return owner;
  std::istringstream words(text.data());
  if (!(words >> owner.process >> owner.machine)) owner = {};
  return owner;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const Owner& owner) {
  const std::string folder = printable(path.parent_path().native());
  if (owner.process == 0)
    throw Error(fmt::format("{}: another run saves its checkpoints here: use another folder", folder));
  const bool here = owner.machine == this_machine();
  throw Error(fmt::format(
      "{}: another run saves its checkpoints here, process {}{}: use another folder, or wait for its end{}",
      folder, owner.process, here ? "" : " on " + printable(owner.machine),
      here ? "" : fmt::format(" (if it has ended, remove {})", printable(path.native()))));
}

// Whether `path` is still the file that is open: whoever had it before may have removed it meanwhile.
bool is_still(int file, const std::filesystem::path& path) {
  struct stat opened, named;
  return fstat(file, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw Error(fmt::format("{}: cannot write: {}", printable(path.native()), std::strerror(errno)));
}

// Locked, or -1 where the file went away meanwhile.
int try_lock(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
  const int file = open(path.c_str(), kFlags, 0666);
  if (file < 0) fail(path);
  try {
    struct stat found;
    if (fstat(file, &found) != 0) fail(path);
    if (!S_ISREG(found.st_mode)) data::open_file(path);  // throws, saying what it is
    const Owner owner = read_owner(file);
    const bool locked = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno == EWOULDBLOCK) refuse(path, read_owner(file));
    const bool elsewhere = owner.machine != this_machine();
    if (!locked && owner.process != 0 && owner.process != getpid() &&
        (elsewhere || process_is_alive(owner.process)))
      refuse(path, owner);
    if (is_still(file, path)) return file;
    close(file);
    return -1;
  } catch (...) {
    close(file);
    throw;
  }
}

}  // namespace

bool process_is_alive(int64_t process) {
  return kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH;
}

FolderLock::FolderLock(const std::filesystem::path& folder) : path_(folder / "lock") {
  for (int tries = 0; file_ < 0; ++tries) {
    if (tries == 100) refuse(path_, {});
    file_ = try_lock(path_);
  }
  const std::string owner = fmt::format("{} {}\n", getpid(), this_machine());
  if (ftruncate(file_, 0) == 0 &&
      pwrite(file_, owner.data(), owner.size(), 0) == static_cast<ssize_t>(owner.size()))
    return;
  const int why = errno;
  close(file_);
  errno = why;
  fail(path_);
}

FolderLock::~FolderLock() {
  if (is_still(file_, path_)) unlink(path_.c_str());
  close(file_);
}

}  // namespace lockstep::nn
