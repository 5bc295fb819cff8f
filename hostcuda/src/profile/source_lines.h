// Which line of the user's source an instruction belongs to, from the debug information (-g): the innermost
// inlined function that is not of hostcuda's headers or of the standard library.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

namespace hostcuda::profile {

struct SourceLine {
  std::string file;  // the whole path; empty: not known
  int line = 0;
  std::string caller_file;  // where that was inlined, if that is another file; else empty
  int caller_line = 0;
  auto operator<=>(const SourceLine&) const = default;
  // "transpose.cu:12"
  std::string text() const;
  std::string caller_text() const;
};

class SourceLines {
 public:
  // Looks all of them up at once, with binutils' addr2line. An instruction is named by the address after it.
  explicit SourceLines(const std::vector<const void*>& instructions);

  const SourceLine& of(const void* instruction) const;

 private:
  std::unordered_map<const void*, SourceLine> lines_;
};

}  // namespace hostcuda::profile
