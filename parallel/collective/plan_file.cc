#include "parallel/collective/plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/names.h"
#include "core/printable.h"
#include "core/text_file.h"
#include "kernels/check.h"
#include "parallel/collective/json_value.h"
#include "parallel/collective/parts.h"

namespace lockstep::collective {
namespace {

using nlohmann::json;

constexpr int kMostRounds = std::numeric_limits<int>::max() - 1;

// An object of the file, as its errors name it: "" or "transfers[3]".
struct Object {
  const json& value;
  std::string where;

  std::string at(const std::string& key) const { return where.empty() ? key : where + ": " + key; }

  void check_keys(const std::vector<std::string>& known) const {
    if (!value.is_object()) throw Error(fmt::format("{} is no object", where.empty() ? "this" : where));
    for (const auto& [key, unused] : value.items())
      if (std::ranges::find(known, key) == known.end())
        throw unknown_name(where.empty() ? "plan" : where, shown_name(key), known);
  }

  bool has(const std::string& key) const { return value.contains(key); }

  const json& get(const std::string& key) const {
    if (!has(key)) throw Error(fmt::format("{} is missing", at(key)));
    return value[key];
  }

  int64_t number(const std::string& key, int64_t least, int64_t most) const {
    return whole_number(get(key), at(key), least, most);
  }

  std::string word(const std::string& key, const std::vector<std::string>& known) const {
    const json& word = get(key);
    const std::string text = word.is_string() ? word.get<std::string>() : shown(word);
    if (std::ranges::find(known, text) == known.end()) throw unknown_name(at(key), shown_name(text), known);
    return text;
  }
};

// Rounds for transfers that name those they come after: each gets the earliest one.
class Rounds {
 public:
  explicit Rounds(std::vector<std::vector<int>> after)
      : after_(std::move(after)), next_(after_.size()), round_(after_.size(), kUnknown) {}

  const std::vector<int>& assign() {
    for (size_t t = 0; t < after_.size(); ++t) visit(static_cast<int>(t));
    return round_;
  }

 private:
  static constexpr int kUnknown = -1, kOnPath = -2;

  // Depth first, without recursion: a file may have a million transfers in a row.
  void visit(int start) {
    if (round_[start] >= 0) return;
    path_ = {start};
    round_[start] = kOnPath;
    while (!path_.empty()) {
      const int t = path_.back();
      if (next_[t] < after_[t].size()) {
        const int before = after_[t][next_[t]++];
        if (round_[before] == kOnPath) throw circle(before);
        if (round_[before] != kUnknown) continue;
        round_[before] = kOnPath;
        path_.push_back(before);
        continue;
      }
      int round = 0;
      for (const int before : after_[t]) round = std::max(round, round_[before] + 1);
      round_[t] = round;
      path_.pop_back();
    }
  }

  Error circle(int from) const {
    std::string circle;
    for (auto t = std::ranges::find(path_, from); t != path_.end(); ++t)
      circle += fmt::format("transfers[{}] waits for ", *t);
    return Error(fmt::format("a circle: {}transfers[{}]", circle, from));
  }

  std::vector<std::vector<int>> after_;
  std::vector<size_t> next_;  // by transfer: the entry of after_ that is to be looked at
  std::vector<int> round_, path_;
};

Plan plan_of(const json& file) {
  const Object top{file, ""};
  top.check_keys({"goal", "root", "ranks", "count", "transfers"});
  Plan plan{static_cast<int>(top.number("ranks", 1, kMostRanks)), top.number("count", 0, kMostElements), {}};
  if (top.has("goal")) {
    std::vector<std::string> names;
    for (const Goal goal : goals()) names.push_back(name_of(goal));
    plan.goal = goals()[std::ranges::find(names, top.word("goal", names)) - names.begin()];
  }
  if (top.has("root")) {
    if (plan.goal != Goal::broadcast && plan.goal != Goal::reduce)
      throw Error(fmt::format("root: {} has none", name_of(plan.goal)));
    plan.root = static_cast<int>(top.number("root", 0, plan.ranks - 1));
  }
  const json& transfers = top.get("transfers");
  if (!transfers.is_array()) throw Error("transfers is no list");

  std::vector<std::vector<int>> after(transfers.size());
  const auto has = [](const char* key) {
    return [key](const json& t) { return t.is_object() && t.contains(key); };
  };
  const bool by_round = std::ranges::any_of(transfers, has("round"));
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Object t{transfers[i], fmt::format("transfers[{}]", i)};
    t.check_keys({"round", "after", "from", "to", "slice", "action"});
    if (by_round && t.has("after"))
      throw Error(fmt::format("{} has \"after\", but others have \"round\": use one of the two", t.where));
    if (t.has("after") && !t.get("after").is_array())
      throw Error(fmt::format("{} is {}: use a list of transfers", t.at("after"), shown(t.get("after"))));
    if (t.has("after"))
      for (const json& before : t.get("after"))
        after[i].push_back(static_cast<int>(
            whole_number(before, t.at("after"), 0, static_cast<int64_t>(transfers.size()) - 1)));
    const json& slice = t.get("slice");
    if (!slice.is_array() || slice.size() != 2)
      throw Error(
          fmt::format("{} is {}: use [first element, one past the last]", t.at("slice"), shown(slice)));
    const int64_t begin = whole_number(slice[0], t.at("slice"), 0, plan.count);
    const int64_t end = whole_number(slice[1], t.at("slice"), 0, plan.count);
    if (begin >= end) throw Error(fmt::format("{} is [{}, {}]: it is empty", t.at("slice"), begin, end));
    const auto rank = [&](const char* key) { return static_cast<int>(t.number(key, 0, plan.ranks - 1)); };
    plan.transfers.push_back({by_round ? static_cast<int>(t.number("round", 0, kMostRounds)) : 0,
                              rank("from"),
                              rank("to"),
                              {begin, end},
                              t.word("action", {"add", "copy"}) == "add" ? Action::add : Action::copy});
    if (plan.transfers.back().source == plan.transfers.back().destination)
      throw Error(fmt::format("{} sends from rank {} to itself", t.where, rank("from")));
  }
  if (!by_round) {
    Rounds rounds(std::move(after));
    const std::vector<int>& round = rounds.assign();
    for (size_t i = 0; i < round.size(); ++i) plan.transfers[i].round = round[i];
  }
  sort_by_round(plan);
  return plan;
}

}  // namespace

Plan parse_plan(const std::string& text, const std::string& name) {
  try {
    return plan_of(parse_json(text));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", printable(name), error.what()));
  }
}

Plan read_plan(const std::filesystem::path& file) {
  return parse_plan(read_text(file), file.native());
}

std::string plan_as_json(const Plan& plan) {
  std::string text = fmt::format("{{\"goal\": \"{}\",", name_of(plan.goal));
  if (plan.goal == Goal::broadcast || plan.goal == Goal::reduce)
    text += fmt::format(" \"root\": {},", plan.root);
  text += fmt::format(" \"ranks\": {}, \"count\": {}, \"transfers\": [", plan.ranks, plan.count);
  const char* separator = "\n";
  for (const Transfer& t : plan.transfers) {
    text += fmt::format(
        "{}  {{\"round\": {}, \"from\": {}, \"to\": {}, \"slice\": [{}, {}], \"action\": \"{}\"}}", separator,
        t.round, t.source, t.destination, t.slice.begin, t.slice.end,
        t.action == Action::add ? "add" : "copy");
    separator = ",\n";
  }
  return text + "\n]}\n";
}

}  // namespace lockstep::collective
