// Values of a JSON file on their way into messages and numbers.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/printable.h"
#include "kernels/check.h"

namespace lockstep::collective {

// Throws Error, saying where, where `text` is no JSON.
inline nlohmann::json parse_json(const std::string& text) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    // "[...] parse error at line 1, column 7: syntax error ...; last read: '(all that was read)'"
    std::string what = error.what();
    what = what.substr(what.find("] ") + 2);
    throw Error("is no JSON: " + printable(what.substr(0, std::min<size_t>(what.find("; last read"), 200))));
  }
}

// A name that somebody wrote, up to a length that a message can have.
inline std::string shown_name(const std::string& name) {
  constexpr size_t kMost = 80;
  return printable(name.substr(0, kMost)) + (name.size() > kMost ? "..." : "");
}

// As a message shows it. Lists and objects are only named: they may be as deep as the file is long.
inline std::string shown(const nlohmann::json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return value.is_string() ? in_quotes(value.get_ref<const std::string&>()) : value.dump();
}

// Throws Error, calling it `where`, unless it is a whole number from `least` to `most`.
inline int64_t whole_number(const nlohmann::json& value, const std::string& where, int64_t least,
                            int64_t most) {
  if (!value.is_number_integer())
    throw Error(fmt::format("{} is {}: use a whole number", where, shown(value)));
  const bool too_large = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
  if (too_large || value.get<int64_t>() < least || value.get<int64_t>() > most)
    throw Error(fmt::format("{} is {}: use {} to {}", where, shown(value), least, most));
  return value.get<int64_t>();
}

}  // namespace lockstep::collective
