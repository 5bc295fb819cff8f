// The command line that all training programs share: which options there are, what they are when nobody types
// them, and which of them make a run what it is.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "apps/common/command_line.h"

namespace lockstep::apps {

// As typed; apps/common/settings.h validates them and turns them into types. A program starts from its own
// defaults.
struct Options {
  int devices = 1;
  std::string allreduce = "ring";
  std::string math = "library";
  std::string precision = "fp32";
  std::string reduce_in = "fp32";
  bool sync_batch_norm = false;
  bool check_lockstep = false;
  bool check_allreduce = false;

  std::string recipe = "default";
  int64_t epochs = 10;
  int64_t batch_size = 256;
  int64_t accumulate = 1;  // batches a step
  std::string init = "kaiming";
  uint64_t seed = 0;
  double label_smoothing = 0;
  double clip_norm = 0.5;  // 0: none

  std::string optimizer = "sgd";
  double momentum = 0.9;
  double weight_decay = 5e-4;
  std::string decay_on = "all";

  double lr = 0.15;
  std::string lr_scale = "none";
  int64_t base_batch = 256;  // what --lr is right for; the program's choice, not an option
  std::string schedule = "cosine";
  double warmup_epochs = 1;  // at most; fill_defaults() knows of short runs
  int64_t step_every = 5;
  double step_gamma = 0.1;

  std::string augment = "none";
  int crop_padding = 2;
  int cutout_size = 8;

  std::string data_dir;
  int64_t limit = 0;  // 0: all rows
  bool quiet = false;
  bool paths = false;
  std::string json;

  std::string checkpoint;        // a folder; empty: no checkpoints
  int64_t checkpoint_every = 0;  // steps; 0: at the end of each epoch
  int64_t checkpoint_keep = 3;
  bool resume = false;
};

// Throws, naming the option, where a number cannot be.
void check_values(const Options& options);

// Adds them all; those of the model are the program's (apps/common/models.h).
void add_options(CLI::App& app, Options& options);

// After parsing: options that nobody typed get what --recipe says, and where their default depends on another
// one, that default. Throws for an unknown recipe.
void fill_defaults(const CLI::App& app, Options& options);

// Every option that makes the run what it is, by its name as typed: a run that is resumed must have the same.
// Not among them: how many devices compute it and with which algorithms (the same up to rounding), where its
// data lie, and what is printed.
std::map<std::string, std::string> run_options(const Options& options);
// Those and all others but the model's.
std::map<std::string, std::string> all_options(const Options& options);

}  // namespace lockstep::apps
