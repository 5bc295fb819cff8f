#include "core/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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

std::string nearest_name(const std::string& name, const std::vector<std::string>& valid) {
  return *std::ranges::min_element(valid, {}, [&](const std::string& v) { return edit_distance(name, v); });
}

Error unknown_name(const std::string& option, const std::string& name,
                   const std::vector<std::string>& valid) {
  return Error(fmt::format("{}: unknown name '{}', did you mean '{}'? ({})", option, name,
                           nearest_name(name, valid), fmt::join(valid, ", ")));
}

}  // namespace lockstep
