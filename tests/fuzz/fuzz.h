// What the fuzz targets share: a file in memory for readers that take a path, and what is counted and
// demanded.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "kernels/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lockstep::fuzz {

inline int64_t accepted = 0, refused = 0;  // inputs, so that a run that never gets past the first check shows

inline void demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: demanded: %s\n", what);
  std::abort();
}

// One file in memory, overwritten by every input.
inline std::filesystem::path file_of(const uint8_t* data, size_t size) {
  static const int file = memfd_create("input", MFD_CLOEXEC);
  demand(file >= 0 && ftruncate(file, 0) == 0, "a file in memory");
  demand(pwrite(file, data, size, 0) == static_cast<ssize_t>(size), "room in memory for the input");
  return "/proc/self/fd/" + std::to_string(file);
}

// Calls read(path). It must return, or throw Error with one line that begins with the file's name; whatever
// else it throws ends the program.
template <typename Read>
void read_or_refuse(const std::filesystem::path& path, const Read& read) {
  try {
    read(path);
    ++accepted;
  } catch (const Error& error) {
    const std::string message = error.what();
    demand(message.find(path.string() + ": ") == 0, "an error that begins with the file's name");
    demand(message.find('\n') == message.npos && message.size() < 2000, "an error of one line");
    ++refused;
  }
}

}  // namespace lockstep::fuzz
