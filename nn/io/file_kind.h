// What a file is that was taken for another one: downloads that went wrong, and other formats for the same
// thing.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lockstep::data {

// Told from the first bytes of a file (64 are enough): "a PyTorch file (zip)", and what to do about it. Empty
// where nothing is known of them.
struct FileKind {
  std::string name;    // "an HTML page"
  std::string advice;  // "download the file itself"
};
FileKind kind_of_file(std::span<const std::byte> begin);

}  // namespace lockstep::data
