// A small text file, read in one go.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

// Throws Error, naming the file and what is wrong, where it cannot be read.
std::string read_text(const std::filesystem::path& file);

}  // namespace lockstep
