// main() of a training program: what differs from one to the next is a model and the defaults.
#pragma once

#include <functional>
#include <string>

#include "apps/common/models.h"
#include "apps/common/options.h"

namespace lockstep::apps {

struct Program {
  std::string name;           // as users type it: "train_lenet"
  std::string about;          // what --help opens with
  std::string examples = {};  // and what it ends with
  Options options = {};       // the defaults of this program
  // Adds options of its own, where it has any.
  std::function<void(CLI::App&)> add_options = {};
  // The model to train; it may still change options that nobody typed.
  std::function<Model(const CLI::App&, Options&)> model = {};
};

// Parses the command line and trains. What throws becomes one line on standard error and exit code 1.
int run(int argc, char** argv, Program program);

// The same for the model of this name (apps/models/), with its options.
int run(int argc, char** argv, Program program, const std::string& model);

}  // namespace lockstep::apps
