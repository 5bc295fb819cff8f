#include "core/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/printable.h"
#include "kernels/check.h"

namespace lockstep {

std::string read_text(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw Error(fmt::format("{}: cannot be read: it is a folder", printable(file.native())));
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in)
    throw Error(fmt::format("{}: cannot be read: {}", printable(file.native()),
                            errno != 0 ? std::generic_category().message(errno) : "reading failed"));
  return text;
}

}  // namespace lockstep
