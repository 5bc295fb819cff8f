// A file that is written as a whole or not at all: whoever opens it finds the old content or the new one,
// also after a crash or a power cut in the middle.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace lockstep::data {

// Makes `path` a file of these parts, one after the other. They are written to PATH.<process>.partial, synced
// to the disk and renamed. Throws Error (the file, what the system says) where that fails, a full disk
// included; then the temporary file is gone and what was there before is untouched. Only a process that is
// killed leaves its temporary file behind. Two threads must not replace the same file at once.
void replace_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);
void replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace lockstep::data
