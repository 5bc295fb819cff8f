#include "nn/data/open_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "kernels/check.h"

namespace lockstep::data {

File open_file(const std::filesystem::path& path) {
  std::error_code ignored;  // what cannot be asked about cannot be opened either: fopen says why
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(fmt::format("{}: found a directory or device, expected a regular file", path.string()));
  File file(std::fopen(path.c_str(), "rb"));
  if (!file) throw Error(fmt::format("{}: cannot open: {}", path.string(), std::strerror(errno)));
  return file;
}

}  // namespace lockstep::data
