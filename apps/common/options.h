// The command line that all training programs share: which options there are, and what makes them valid.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/names.h"
#include "kernels/math.h"
#include "kernels/sgd.h"
#include "nn/init.h"
#include "nn/schedule.h"
#include "parallel/plan.h"

namespace lockstep::apps {

// As typed; validated and turned into types by settings().
struct Options {
  int devices = 1;
  int64_t batch_size = 256;
  double lr = 0.15;
  int64_t epochs = 10;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  std::string schedule = "cosine";
  std::string init = "kaiming";
  std::string model;
  std::string allreduce = "ring";
  std::string math = "library";
  uint64_t seed = 0;
  std::string data_dir;
  int64_t limit = 0;  // 0: all rows
  bool check_lockstep = false;
  bool quiet = false;
  std::string json;
};

struct Settings {
  kernels::SgdSettings sgd;
  nn::Schedule schedule;
  nn::Init init;
  kernels::Math math;
  parallel::Algorithm allreduce;
};

// Adds every option but --model, which each program describes itself.
void add_options(CLI::App& app, Options& options);

// Throws Error, naming the option, for values that cannot be.
Settings validate(const Options& options);

// Parses the command line. Returns -1 to go on, or the exit code where the program is done (help, bad usage).
int parse(CLI::App& app, int argc, char** argv);

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
