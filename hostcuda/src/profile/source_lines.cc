#include "hostcuda/src/profile/source_lines.h"

#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>

#include "hostcuda/src/runtime/report.h"
#include "hostcuda/src/runtime/symbols.h"

namespace hostcuda::profile {

namespace {

bool is_users(std::string_view file) {
  for (const char* part :
       {"/hostcuda/include/", "/lockstep/hostcuda/", "/include/c++/", "/usr/include/", "/usr/lib/"})
    if (file.find(part) != std::string_view::npos) return false;
  return !file.starts_with("?");
}

std::string executable_path() {
  std::string path(PATH_MAX, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return path;
}

// For the shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// "/place/build/../kernels/sgd.cu:12 (discriminator 3)"
void parse(const std::string& text, std::string& file, int& line) {
  const size_t colon = text.rfind(':', text.find(" (discriminator"));
  if (colon == std::string::npos) return;
  file = std::filesystem::path(text.substr(0, colon)).lexically_normal().string();
  line = std::atoi(text.c_str() + colon + 1);
}

// The places of an instruction come the innermost first.
void add_place(const std::string& place, SourceLine& line) {
  if (line.file.empty()) {
    parse(place, line.file, line.line);
  } else if (line.caller_file.empty()) {
    parse(place, line.caller_file, line.caller_line);
    if (line.caller_file == line.file) line.caller_file.clear();
    if (line.caller_file.empty()) line.caller_line = 0;
  }
}

std::string place_text(const std::string& file, int line) {
  return file.empty() ? "an unknown line" : file_name(file.c_str()) + ":" + std::to_string(line);
}

}  // namespace

std::string SourceLine::text() const {
  return place_text(file, line);
}

std::string SourceLine::caller_text() const {
  return place_text(caller_file, caller_line);
}

SourceLines::SourceLines(const std::vector<const void*>& instructions) {
  if (instructions.empty()) return;
  const auto base = load_address();
  std::unordered_map<uintptr_t, const void*> by_offset;
  char name[] = "/tmp/hostcuda_lines_XXXXXX";
  const int file = mkstemp(name);
  if (file < 0) return;
  {
    FILE* const list = fdopen(file, "w");
    for (const void* instruction : instructions) {
      const uintptr_t offset = reinterpret_cast<uintptr_t>(instruction) - base - 1;
      by_offset[offset] = instruction;
      std::fprintf(list, "0x%zx\n", static_cast<size_t>(offset));
    }
    std::fclose(list);
  }
  const std::string command =
      "addr2line -a -i -e " + quoted(executable_path()) + " <" + quoted(name) + " 2>/dev/null";
  if (const std::unique_ptr<FILE, int (*)(FILE*)> answer(popen(command.c_str(), "r"), pclose);
      answer != nullptr) {
    const void* instruction = nullptr;
    char* text = nullptr;
    size_t capacity = 0;
    // An address, then its places.
    while (getline(&text, &capacity, answer.get()) > 0) {
      std::string place(text);
      place.resize(place.find_last_not_of('\n') + 1);
      if (place.starts_with("0x")) {
        const auto found = by_offset.find(std::strtoull(text, nullptr, 16));
        instruction = found == by_offset.end() ? nullptr : found->second;
      } else if (instruction != nullptr && is_users(place)) {
        add_place(place, lines_[instruction]);
      }
    }
    std::free(text);
  }
  unlink(name);
}

const SourceLine& SourceLines::of(const void* instruction) const {
  static const SourceLine unknown;
  const auto found = lines_.find(instruction);
  return found == lines_.end() ? unknown : found->second;
}

}  // namespace hostcuda::profile
