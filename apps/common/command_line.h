// What the command lines of all programs have in common: help that fits a terminal, errors of one line, and
// values that are names or numbers.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/names.h"

namespace lockstep::apps {

// "0.1.0", CMake's: which Lockstep this is.
const char* version();

// Descriptions are broken into lines of a terminal's usual width, and defaults shown. To be called first.
void use_help_format(CLI::App& app);

// Parses the command line. Returns -1 to go on, or the exit code where the program is done (help, bad usage).
int parse(CLI::App& app, int argc, char** argv);

// Returns what `work` does, when what it printed is written. What it throws, and a standard output that
// cannot be written, becomes one line on standard error, and exit code 1.
int report_errors(const std::string& program, const std::function<int()>& work);

// Throws Error: "--momentum is 1: use 0 or more, and less than 1".
void check_value(bool good, const char* option, double value, const char* wanted);

// The value that `text` names; throws with the nearest valid name where there is none.
template <typename T>
T choose(const std::string& option, const std::string& text,
         const std::vector<std::pair<std::string, T>>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names.push_back(name);
  }
  throw unknown_name(option, text, names);
}

}  // namespace lockstep::apps
