// Checkpoints: everything that a training run needs to go on as if it had never stopped. A checkpoint is two
// files of a folder. FOLDER/step-000000123.safetensors has the weights and the combined running statistics,
// for everybody who can read safetensors; FOLDER/step-000000123.state, which is written after it, has the
// rest and the SHA-256 of both. It counts only when both are whole. docs/checkpoints.md tells the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nn/io/folder_lock.h"
#include "nn/io/safetensors.h"

namespace lockstep::nn {

struct Checkpoint {
  int64_t step = 0;                                     // steps done; names the files
  std::vector<data::HostTensor> weights;                // nn::state_dict, running statistics combined
  std::map<std::string, std::string> model;             // what rebuilds the model: "model" = "resnet18", ...
  std::vector<data::HostTensor> optimizer;              // nn::Optimizer::state, the same in every replica
  std::vector<std::vector<data::HostTensor>> replicas;  // nn::replica_state of each
  std::map<std::string, std::string> run;               // the program's own: options, place in the epoch, ...

  bool operator==(const Checkpoint&) const = default;
};

// What a weights file says about its format; other programs that write such files (an import) say it too.
inline constexpr const char* kWeightsFormat = "lockstep 1";

// The two files of the checkpoint after `step` steps.
std::filesystem::path weights_path(const std::filesystem::path& folder, int64_t step);
std::filesystem::path state_path(const std::filesystem::path& folder, int64_t step);

// Steps of the checkpoints in `folder`, whole or not, in rising order. None where there is no such folder.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& folder);

// Throws Error, in one line with the file and the reason, where a file is missing, cut short, changed in any
// bit, or none of ours.
Checkpoint read_checkpoint(const std::filesystem::path& folder, int64_t step);

struct FoundCheckpoint {
  Checkpoint checkpoint;
  std::vector<std::string> refused;  // a line for each newer one that cannot be used
};
// The newest checkpoint that can be used, also while a run saves in the folder. Throws Error where there is
// none.
FoundCheckpoint newest_checkpoint(const std::filesystem::path& folder);

struct Weights {
  std::filesystem::path file;
  std::vector<data::HostTensor> tensors;
  std::map<std::string, std::string> model;  // as in Checkpoint
  std::vector<std::string> refused;          // as in FoundCheckpoint
};
// The weights in a file, or in the newest usable checkpoint of a folder: for programs that do not train. A
// file beside its state file must have the SHA-256 that this names. Throws Error, also where the file is not
// in kWeightsFormat.
Weights read_weights(const std::filesystem::path& file_or_folder);

// Saves into one folder, and keeps the newest checkpoints only.
class CheckpointWriter {
 public:
  // Makes the folder, where it is missing, and a file in it, so that what cannot be written is found now;
  // removes what killed processes left half-written. One writer a folder at a time, also of several
  // processes (nn/io/folder_lock.h). `keep`, 1 or more: so many checkpoints stay. Throws Error.
  CheckpointWriter(const std::filesystem::path& folder, int64_t keep);

  // From now on the checkpoints after `step`, of which a run that goes on from it found none usable, do not
  // count as kept. Throws Error where a folder with something in it is in the way of one.
  void resume_from(int64_t step);
  // Writes the weights, then the state, each as a whole or not at all, then removes old checkpoints, unless
  // they are to be kept for now. Throws Error where that fails (a full disk); then there is nothing of this
  // checkpoint, and the earlier ones are as they were.
  enum class Old { remove, keep };
  void save(const Checkpoint& checkpoint, Old old = Old::remove);
  // Writes the state of a checkpoint that has been saved, with the same weights, anew. Whenever that ends,
  // the checkpoint is whole.
  void replace_state(const Checkpoint& checkpoint) const;
  // Removes old checkpoints, where that after `newest` is the newest.
  void remove_old(int64_t newest) const;
  // Removes the checkpoint after `step`.
  void remove(int64_t step) const;

 private:
  void remove_leftovers() const;

  std::filesystem::path folder_;
  int64_t keep_;
  FolderLock lock_;
  std::vector<int64_t> unusable_;  // steps of checkpoints that do not count
};

}  // namespace lockstep::nn
