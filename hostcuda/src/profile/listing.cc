// The sources of the kernels with what each line costs in the margin, 80 columns wide.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "hostcuda/src/profile/profile.h"

namespace hostcuda::profile {

namespace {

constexpr size_t kColumns = 80;
constexpr size_t kMargin = 21;
constexpr int kAround = 2;  // lines that are shown before and after one with accesses

// What stands beside a line: its worst access.
struct Margin {
  double weight = -1;
  std::string text;
  bool bad = false;
};

Margin margin_of(const LineSummary& line) {
  char text[64];
  const char kind = line.kind == Kind::load ? 'L' : line.kind == Kind::store ? 'S' : 'A';
  if (line.space == Space::shared)
    std::snprintf(text, sizeof text, "%c %4.1f passes", kind, line.conflict());
  else
    std::snprintf(text, sizeof text, "%c %4.1f sect %7s", kind, line.sectors_a_request(),
                  bytes_text(line.bytes_moved).c_str());
  const bool bad = !line.wrong.empty();
  return {line.bytes_moved + line.passes + (bad ? 1e30 : 0), text, bad};
}

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void print_listing(const Summary& summary, std::FILE* out) {
  std::map<std::string, std::map<int, Margin>> files;
  std::map<std::string, std::set<int>> races;
  for (const KernelSummary& kernel : summary.kernels) {
    for (const LineSummary& line : kernel.lines) {
      if (line.line.file.empty()) continue;
      Margin& margin = files[line.line.file][line.line.line];
      if (Margin candidate = margin_of(line); candidate.weight > margin.weight) margin = candidate;
    }
    for (const RaceSummary& race : kernel.races) {
      races[race.earlier.file].insert(race.earlier.line);
      races[race.later.file].insert(race.later.line);
    }
  }
  // A listing of everything would hide what matters in a program of many files.
  if (files.size() != 1) return;
  const auto& [path, margins] = *files.begin();
  const std::vector<std::string> source = read_lines(path);
  if (source.empty()) return;
  std::fprintf(out, "\n%s: L loads, S stores, A atomics; ! see the table, R race\n",
               path.substr(path.rfind('/') + 1).c_str());
  int last = 0;
  for (int line = 1; line <= static_cast<int>(source.size()); ++line) {
    const auto near = margins.lower_bound(line - kAround);
    if (near == margins.end() || near->first > line + kAround) continue;
    if (last != 0 && line > last + 1) std::fprintf(out, "%*s...\n", static_cast<int>(kMargin) + 2, "");
    last = line;
    const auto margin = margins.find(line);
    const bool raced = races[path].contains(line);
    std::string mark = raced ? "R" : " ";
    mark += margin != margins.end() && margin->second.bad ? "!" : " ";
    std::string text = source[static_cast<size_t>(line) - 1];
    const size_t room = kColumns - kMargin - 7;
    if (text.size() > room) text = text.substr(0, room - 3) + "...";
    std::fprintf(out, "%-*s%s%5d %s\n", static_cast<int>(kMargin) - 1,
                 margin == margins.end() ? "" : margin->second.text.c_str(), mark.c_str(), line,
                 text.c_str());
  }
}

}  // namespace hostcuda::profile
