#include "core/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "core/printable.h"

namespace lockstep {
namespace {

// The optimal string alignment distance: cost[i][j] is the number of edits from the first i letters of `a` to
// the first j letters of `b`.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const bool same = a[i - 1] == b[j - 1];
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0u : 1u)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> near_name(const std::string& name, const std::vector<std::string>& valid) {
  const std::string* nearest = nullptr;
  size_t fewest =
      std::max<size_t>(1, std::ranges::count_if(name, [](unsigned char c) { return std::isalpha(c); }) / 3) +
      1;
  for (const std::string& v : valid)
    if (const size_t edits = edit_distance(name, v); edits < fewest) {
      nearest = &v;
      fewest = edits;
    }
  return nearest == nullptr ? std::nullopt : std::optional(*nearest);
}

Error unknown_name(const std::string& option, const std::string& name,
                   const std::vector<std::string>& valid) {
  const std::optional<std::string> near = near_name(name, valid);
  return Error(fmt::format(
      "{}: unknown name '{}'{} ({})", option, printable(name),
      near ? fmt::format(", did you mean '{}'?", *near) : ": use one of these:", fmt::join(valid, ", ")));
}

}  // namespace lockstep
