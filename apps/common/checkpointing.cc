#include "apps/common/checkpointing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "apps/common/output.h"
#include "core/printable.h"
#include "nn/io/state_dict.h"

namespace lockstep::apps {

using Json = nlohmann::json;
using Texts = std::map<std::string, std::string>;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EpochSums, loss, allreduce_seconds, steps, rows, correct)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(EpochResult, epoch, train_loss, train_accuracy, test_accuracy,
                                                learning_rate, seconds, images_per_second, allreduce_share)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainingProgress, step, images, epoch, position, seconds, sums, results)

namespace {

// What differs, as "--lr is 0.1 there and 0.2 here".
std::vector<std::string> differences(const Texts& there, const Texts& here) {
  std::set<std::string> keys;
  for (const Texts* texts : {&there, &here})
    for (const auto& [key, value] : *texts) keys.insert(key);
  const auto value_in = [](const Texts& texts, const std::string& key) {
    const auto found = texts.find(key);
    return found == texts.end() ? "not set" : found->second;
  };
  std::vector<std::string> result;
  for (const std::string& key : keys)
    if (value_in(there, key) != value_in(here, key))
      result.push_back(
          fmt::format("{} is {} there and {} here", key, value_in(there, key), value_in(here, key)));
  return result;
}

// Loads the checkpoint's weights and its optimizer's state into all replicas, and into each what it had of
// its own; where there are more or fewer replicas now, the combined running statistics and replica 0's
// counters.
void load(const nn::Checkpoint& checkpoint, parallel::Trainer& trainer, const std::string& file) {
  parallel::DataParallel& net = trainer.net();
  nn::load_state_dict(net.module(), checkpoint.weights, file);
  net.broadcast();
  const std::vector<std::string> names = nn::parameter_names(net.module());
  for (const auto& optimizer : trainer.optimizers().optimizers())
    optimizer->load_state(names, checkpoint.optimizer, file);

  if (checkpoint.replicas.size() == net.replicas().size()) {
    for (size_t r = 0; r < net.replicas().size(); ++r)
      nn::load_replica_state(*net.replicas()[r], checkpoint.replicas[r], file);
    net.set_rows_since_combined(
        Json::parse(checkpoint.run.at("rows_since_combined")).get<std::vector<int64_t>>());
    return;
  }
  if (checkpoint.replicas.empty()) return;
  std::vector<data::HostTensor> own = checkpoint.replicas[0];
  for (data::HostTensor& tensor : own)
    for (const data::HostTensor& combined : checkpoint.weights)
      if (combined.name == tensor.name) tensor = combined;
  for (const auto& replica : net.replicas()) nn::load_replica_state(*replica, own, file);
}

}  // namespace

Checkpointing::Checkpointing(const Options& options, RunIdentity identity)
    : options_(options), identity_(std::move(identity)) {
  const std::filesystem::path folder = options_.checkpoint;
  if (folder.empty()) return;
  const std::vector<int64_t> steps = nn::checkpoint_steps(folder);
  if (options_.resume && steps.empty())
    throw Error(
        fmt::format("--resume: there is no checkpoint in {}: to start at the beginning, leave --resume out",
                    options_.checkpoint));
  if (!options_.resume && !steps.empty())
    throw Error(
        fmt::format("--checkpoint {}: there are checkpoints in it already, the newest after step {}: add "
                    "--resume to go on from it, or use another folder",
                    options_.checkpoint, steps.back()));
  // Before anything is read: from here on no other run saves in this folder.
  writer_ = std::make_unique<nn::CheckpointWriter>(folder, options_.checkpoint_keep);
  if (!options_.resume) return;
  find();
  writer_->resume_from(found_->step);
  saved_step_ = found_->step;
}

void Checkpointing::find() {
  nn::FoundCheckpoint found;
  try {
    found = nn::newest_checkpoint(options_.checkpoint);
  } catch (const Error& error) {
    throw Error(fmt::format(
        "--resume: {}: to start at the beginning, empty the folder and leave --resume out", error.what()));
  }
  for (const std::string& line : found.refused) print_notice(line + ": passed over");
  found_ = std::move(found.checkpoint);
  const Texts there = Json::parse(found_->run.at("options")).get<Texts>();
  std::vector<std::string> all = differences(found_->model, identity_.model);
  for (std::string& difference : differences(there, identity_.options)) all.push_back(std::move(difference));
  if (!all.empty())
    throw Error(
        fmt::format("--resume: {} is of another run: {}: go on with its values, or start this run in another "
                    "folder",
                    nn::state_path(options_.checkpoint, found_->step).string(), fmt::join(all, ", ")));
}

TrainingProgress Checkpointing::resume(parallel::Trainer& trainer) {
  if (!found_) return {};
  const TrainingProgress progress = Json::parse(found_->run.at("place")).get<TrainingProgress>();
  load(*found_, trainer, nn::state_path(options_.checkpoint, found_->step).string());
  if (!options_.quiet) print_note(progress);
  found_.reset();
  return progress;
}

void Checkpointing::print_note(const TrainingProgress& progress) const {
  const std::string state = printable(nn::state_path(options_.checkpoint, found_->step).native());
  if (progress.epoch >= options_.epochs) {
    fmt::print("{}: all {} epochs are done: nothing left to do\n", state, progress.epoch);
    return;
  }
  fmt::print("going on from {}: {} epochs and {} steps are done\n", state, progress.epoch, progress.position);
  const auto changed = differences(Json::parse(found_->run.at("machine")).get<Texts>(), identity_.machine);
  if (!changed.empty())
    fmt::print(
        "note: {}: from here on the weights differ, by rounding, from those of a run that did not stop\n",
        fmt::join(changed, ", "));
}

bool Checkpointing::due_in_epoch(const TrainingProgress& progress) const {
  return writer_ && options_.checkpoint_every > 0 && progress.step % options_.checkpoint_every == 0;
}

bool Checkpointing::due_after_epoch(const TrainingProgress& progress, bool last) const {
  return writer_ && (options_.checkpoint_every == 0 || last || due_in_epoch(progress));
}

void Checkpointing::save(const TrainingProgress& progress, parallel::Trainer& trainer) {
  if (!writer_ || progress.step == saved_step_) return;
  writer_->save(checkpoint_of(progress, trainer), nn::CheckpointWriter::Old::keep);
  saved_step_ = progress.step;
  unproven_ = true;
}

void Checkpointing::proven() {
  if (std::exchange(unproven_, false)) writer_->remove_old(saved_step_);
}

void Checkpointing::evaluated(const TrainingProgress& progress, parallel::Trainer& trainer) {
  if (!writer_ || progress.step != saved_step_) return;
  writer_->replace_state(checkpoint_of(progress, trainer));
  proven();
}

void Checkpointing::disproven() {
  if (std::exchange(unproven_, false)) writer_->remove(saved_step_);
}

nn::Checkpoint Checkpointing::checkpoint_of(const TrainingProgress& progress,
                                            parallel::Trainer& trainer) const {
  const parallel::DataParallel& net = trainer.net();
  nn::Checkpoint checkpoint{
      .step = progress.step,
      .weights = net.state_dict(),
      .model = identity_.model,
      .optimizer = trainer.optimizers().optimizers()[0]->state(nn::parameter_names(net.module())),
      .replicas = {},
      .run = {}};
  for (const auto& replica : net.replicas()) checkpoint.replicas.push_back(nn::replica_state(*replica));
  checkpoint.run = {{"place", Json(progress).dump()},
                    {"options", Json(identity_.options).dump()},
                    {"machine", Json(identity_.machine).dump()},
                    {"rows_since_combined", Json(net.rows_since_combined()).dump()}};
  return checkpoint;
}

std::string Checkpointing::how_to_go_back() const {
  if (!writer_) return "";
  const std::vector<int64_t> steps = nn::checkpoint_steps(options_.checkpoint);
  if (steps.empty()) return fmt::format("; there is no checkpoint in {} yet", options_.checkpoint);
  return fmt::format("; the newest checkpoint in {} is that after step {}", options_.checkpoint,
                     steps.back());
}

std::string Checkpointing::how_to_go_on() const {
  if (!writer_) return "";
  return fmt::format("; it is saved in {}: the same command with --resume goes on from here",
                     options_.checkpoint);
}

}  // namespace lockstep::apps
