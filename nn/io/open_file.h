// Opening a file to read it, with one line where that cannot be.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>

namespace lockstep::data {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Opens a regular file for reading; throws Error, naming it, for anything else (a directory, a device, a
// FIFO, for which it does not wait), and where it cannot be opened.
File open_file(const std::filesystem::path& path);

}  // namespace lockstep::data
