// Checkpoints of a training run: when they are written, what a run must have in common with one to go on from
// it, and how it does.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "apps/common/options.h"
#include "apps/common/training_progress.h"
#include "nn/io/checkpoint.h"
#include "parallel/trainer.h"

namespace lockstep::apps {

// What makes a run the one it is.
struct RunIdentity {
  std::map<std::string, std::string> model;    // its description (apps/common/models.h)
  std::map<std::string, std::string> options;  // run_options(), and the data: equal, or it is another run
  std::map<std::string, std::string> machine;  // devices, algorithms: where they differ, roundings do
};

class Checkpointing {
 public:
  // With options.checkpoint empty it does nothing. Else it finds now, before training, what cannot work: a
  // folder that cannot be written or has the checkpoints of another run; with options.resume, no usable
  // checkpoint, or one of a run with another identity. Prints a line on standard error for each checkpoint
  // that it had to pass over. Throws Error.
  Checkpointing(const Options& options, RunIdentity identity);

  // With options.resume: loads the checkpoint into the trainer, and tells (unless quiet) from where the run
  // goes on. Else one of 0 steps.
  TrainingProgress resume(parallel::Trainer& trainer);

  // Whether a checkpoint is due at this progress.
  bool due_in_epoch(const TrainingProgress& progress) const;
  bool due_after_epoch(const TrainingProgress& progress, bool last) const;
  // Saves, unless that has been done after this step. The trainer's reports up to here are in `progress`.
  // Changes nothing in the run. The older checkpoints all stay until it is known that these weights are worth
  // something:
  void save(const TrainingProgress& progress, parallel::Trainer& trainer);
  // They gave a number: the loss of the next step.
  void proven();
  // They were evaluated: the result is in `progress`, and now in the checkpoint of this step, where there is
  // one.
  void evaluated(const TrainingProgress& progress, parallel::Trainer& trainer);
  // They gave none: the checkpoint goes away, if it was saved in this run and not proven.
  void disproven();

  // How an interrupted run goes on: "" where it has no checkpoints.
  std::string how_to_go_on() const;
  // What a run that went wrong leaves behind: "" where it has no checkpoints.
  std::string how_to_go_back() const;

 private:
  void find();
  nn::Checkpoint checkpoint_of(const TrainingProgress& progress, parallel::Trainer& trainer) const;
  void print_note(const TrainingProgress& progress) const;

  const Options& options_;
  RunIdentity identity_;
  std::unique_ptr<nn::CheckpointWriter> writer_;
  std::optional<nn::Checkpoint> found_;  // until it is loaded
  int64_t saved_step_ = -1;
  bool unproven_ = false;  // what was saved last
};

}  // namespace lockstep::apps
