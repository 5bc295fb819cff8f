// What can be known about a file to write before the work that fills it.
#pragma once

#include <filesystem>

namespace lockstep::apps {

// Throws Error where the folder of `path` is not there or may not be written into, or `path` is a folder or
// "-".
void check_can_be_written(const std::filesystem::path& path);

// Throws Error where `out` is the file `in`, which would be lost, or "-".
void check_other_file(const std::filesystem::path& out, const std::filesystem::path& in);

}  // namespace lockstep::apps
