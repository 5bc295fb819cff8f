// One writer a folder at a time. The writer holds FOLDER/lock, which names its process; the system gives the
// lock back when the process ends, in whatever way.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lockstep::nn {

class FolderLock {
 public:
  // Throws Error where another writer has the folder, naming its process where that is known, and where the
  // file cannot be made. On a file system without locks the process that the file names decides: one that has
  // ended does not count; of one on another machine nothing is known, so it does.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();  // the file goes with it
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path path_;
  int file_ = -1;
};

// Whether there is such a process on this machine.
bool process_is_alive(int64_t process);

}  // namespace lockstep::nn
