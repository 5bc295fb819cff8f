// The order of writing makes the promise: weights, then the state that names their SHA-256, then the removal
// of old ones. Whenever the process ends, the newest pair that is whole is a checkpoint.
#include "nn/io/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <ranges>
#include <set>
#include <string_view>
#include <utility>

#include "core/device.h"
#include "core/printable.h"
#include "core/sha256.h"
#include "kernels/check.h"
#include "nn/io/open_file.h"
#include "nn/io/replace_file.h"

namespace lockstep::nn {
namespace {

namespace fs = std::filesystem;
using data::HostTensor;
using Metadata = std::map<std::string, std::string>;

constexpr const char* kStateFormat = "lockstep state 1";
constexpr const char* kOptimizer = "optimizer.";
constexpr const char* kRun = "run.";

std::string replica_prefix(int64_t replica) {
  return fmt::format("replica.{}.", replica);
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// The rest of `text` after `prefix`.
std::optional<std::string> after(const std::string& text, const std::string& prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

// In messages.
std::string shown(const fs::path& path) {
  return printable(path.native());
}

std::string sha256_of_file(const fs::path& path) {
  const data::File file = data::open_file(path);
  Sha256 digest;
  std::vector<std::byte> block(1 << 20);
  while (const size_t count = std::fread(block.data(), 1, block.size(), file.get()))
    digest.update(std::span(block).first(count));
  if (std::ferror(file.get()) != 0)
    throw Error(fmt::format("{}: cannot read: {}", shown(path), std::strerror(errno)));
  return digest.hex();
}

// Over all that the state file says, but for this digest. Lengths stand before texts, so that no two contents
// give the same bytes.
std::string digest_of(const data::Safetensors& state) {
  Sha256 digest;
  for (const auto& [key, value] : state.metadata)
    if (key != "sha256") digest.update(fmt::format("{} {} {}{}", key.size(), value.size(), key, value));
  for (const HostTensor& tensor : state.tensors) {
    digest.update(fmt::format("{} {} {} [{}]", tensor.name.size(), tensor.name, name_of(tensor.dtype),
                              fmt::join(tensor.shape, ",")));
    digest.update(tensor.bytes);
  }
  return digest.hex();
}

void add_prefixed(std::vector<HostTensor>& all, const std::string& prefix,
                  const std::vector<HostTensor>& some) {
  for (const HostTensor& tensor : some) {
    all.push_back(tensor);
    all.back().name = prefix + tensor.name;
  }
}

const std::string& entry(const Metadata& metadata, const char* key, const fs::path& path) {
  const auto found = metadata.find(key);
  if (found == metadata.end())
    throw Error(fmt::format("{}: is not Lockstep's: its metadata have no \"{}\"", shown(path), key));
  return found->second;
}

void check_format(const Metadata& metadata, const char* wanted, const fs::path& path) {
  const std::string& format = entry(metadata, "format", path);
  if (format != wanted)
    throw Error(fmt::format("{}: its format is {}, this program reads {}", shown(path), in_quotes(format),
                            in_quotes(wanted)));
}

data::Safetensors read_state(data::File file, const fs::path& path, int64_t step) {
  data::Safetensors state = data::read_safetensors(std::move(file), path);
  check_format(state.metadata, kStateFormat, path);
  if (entry(state.metadata, "sha256", path) != digest_of(state))
    throw Error(
        fmt::format("{}: is damaged: its content does not have the SHA-256 that it names", shown(path)));
  if (const std::string& named = entry(state.metadata, "step", path); named != std::to_string(step))
    throw Error(fmt::format("{}: is of step {}: it has been renamed", shown(path), printable(named)));
  return state;
}

// The weights file that belongs to this state: the bytes that are used are those whose digest was compared.
data::Safetensors read_weights_of(const data::Safetensors& state, const fs::path& state_file, data::File file,
                                  const fs::path& path) {
  Sha256 digest;
  data::Safetensors weights = data::read_safetensors(
      std::move(file), path, [&digest](std::span<const std::byte> bytes) { digest.update(bytes); });
  if (digest.hex() != entry(state.metadata, "weights_sha256", state_file))
    throw Error(fmt::format("{}: is damaged, or of another run: its SHA-256 is not the one in {}",
                            shown(path), shown(state_file.filename())));
  return weights;
}

// What a weights file says of its model.
Metadata model_of(Metadata metadata) {
  metadata.erase("format");
  metadata.erase("step");
  return metadata;
}

bool is_missing(const fs::path& path) {
  std::error_code unknown;
  return fs::symlink_status(path, unknown).type() == fs::file_type::not_found;
}

// A file, a link or an empty folder; what is not there is removed already.
void remove_entry(const fs::path& path) {
  std::error_code failed;
  fs::remove(path, failed);
  if (failed) throw Error(fmt::format("{}: cannot be removed: {}", shown(path), failed.message()));
}

bool is_filled_folder(const fs::path& path) {
  std::error_code unknown;
  return fs::symlink_status(path, unknown).type() == fs::file_type::directory && !fs::is_empty(path, unknown);
}

// Of the form NAME.<process>.partial (nn/io/replace_file.h): the process that writes it.
std::optional<int64_t> process_of_partial(const std::string& name) {
  constexpr std::string_view kEnd = ".partial";
  if (!name.starts_with("step-") || !name.ends_with(kEnd)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(0, name.size() - kEnd.size());
  const size_t dot = rest.rfind('.');
  return dot == rest.npos ? std::nullopt : number(rest.substr(dot + 1));
}

// Calls `visit` with each name in the folder. Throws Error where it cannot be read, but not where it is
// missing.
template <typename Visit>
void for_each_name(const fs::path& folder, const Visit& visit) {
  std::error_code failed;
  for (fs::directory_iterator file(folder, failed), end; !failed && file != end; file.increment(failed))
    visit(file->path().filename().string());
  if (failed && failed != std::errc::no_such_file_or_directory)
    throw Error(fmt::format("{}: cannot be read: {}", shown(folder), failed.message()));
}

// The step of the checkpoint that a file of this name belongs to.
std::optional<int64_t> step_of(const std::string& name) {
  const auto step = number(after(fs::path(name).stem().string(), "step-").value_or(""));
  const bool ours = step && (name == weights_path("", *step) || name == state_path("", *step));
  return ours ? step : std::nullopt;
}

// The files of a folder's checkpoints, as far as tells whether one was made, removed or replaced.
std::vector<std::string> files_of_checkpoints(const fs::path& folder) {
  std::vector<std::string> files;
  for_each_name(folder, [&](const std::string& name) {
    struct stat found = {};
    if (!step_of(name) || lstat((folder / name).c_str(), &found) != 0) return;
    files.push_back(
        fmt::format("{} {} {} {}", name, found.st_ino, found.st_mtim.tv_sec, found.st_mtim.tv_nsec));
  });
  std::ranges::sort(files);
  return files;
}

}  // namespace

fs::path weights_path(const fs::path& folder, int64_t step) {
  return folder / fmt::format("step-{:09}.safetensors", step);
}

fs::path state_path(const fs::path& folder, int64_t step) {
  return folder / fmt::format("step-{:09}.state", step);
}

std::vector<int64_t> checkpoint_steps(const fs::path& folder) {
  std::set<int64_t> steps;
  for_each_name(folder, [&steps](const std::string& name) {
    if (const auto step = step_of(name)) steps.insert(*step);
  });
  return {steps.begin(), steps.end()};
}

Checkpoint read_checkpoint(const fs::path& folder, int64_t step) {
  const fs::path weights_file = weights_path(folder, step), state_file = state_path(folder, step);
  if (is_missing(state_file))
    throw Error(fmt::format("{}: the state file beside it is missing: the run ended while it saved",
                            shown(weights_file)));
  if (is_missing(weights_file))
    throw Error(fmt::format("{}: the weights file beside it is missing", shown(state_file)));
  // Both are open before one is read: a run that removes them meanwhile does not take them from here.
  data::File state_opened = data::open_file(state_file), weights_opened = data::open_file(weights_file);
  data::Safetensors state = read_state(std::move(state_opened), state_file, step);
  data::Safetensors weights = read_weights_of(state, state_file, std::move(weights_opened), weights_file);
  check_format(weights.metadata, kWeightsFormat, weights_file);

  Checkpoint checkpoint{.step = step,
                        .weights = std::move(weights.tensors),
                        .model = model_of(std::move(weights.metadata)),
                        .optimizer = {},
                        .replicas = {},
                        .run = {}};
  const std::string& replicas = entry(state.metadata, "replicas", state_file);
  if (const auto count = number(replicas); count && *count <= kMaxDevices)
    checkpoint.replicas.resize(static_cast<size_t>(*count));
  else
    throw Error(fmt::format("{}: names {} replicas", shown(state_file), in_quotes(replicas)));
  for (HostTensor& tensor : state.tensors) {
    std::vector<HostTensor>* part = &checkpoint.optimizer;
    std::optional<std::string> name = after(tensor.name, kOptimizer);
    for (size_t r = 0; r < checkpoint.replicas.size() && !name; ++r) {
      part = &checkpoint.replicas[r];
      name = after(tensor.name, replica_prefix(static_cast<int64_t>(r)));
    }
    if (!name)
      throw Error(fmt::format("{}: has a tensor {} of no part", shown(state_file), in_quotes(tensor.name)));
    tensor.name = *name;
    part->push_back(std::move(tensor));
  }
  for (const auto& [key, value] : state.metadata)
    if (const auto name = after(key, kRun)) checkpoint.run[*name] = value;
  return checkpoint;
}

// A run that saves here meanwhile makes new files and removes old ones: where one cannot be used and the
// files have changed, they are looked at again. The bound is for a run that saves faster than files can be
// opened.
FoundCheckpoint newest_checkpoint(const fs::path& folder) {
  constexpr int kLooks = 1000;
  for (int look = 1;; ++look) {
    const std::vector<std::string> files = files_of_checkpoints(folder);
    const std::vector<int64_t> steps = checkpoint_steps(folder);
    FoundCheckpoint found;
    bool changed = false;
    for (auto step = steps.rbegin(); step != steps.rend() && !changed; ++step) try {
        found.checkpoint = read_checkpoint(folder, *step);
        return found;
      } catch (const Error& error) {
        found.refused.emplace_back(error.what());
        changed = look < kLooks && files_of_checkpoints(folder) != files;
      }
    if (changed) continue;
    if (found.refused.empty()) throw Error(fmt::format("{}: there is no checkpoint in it", shown(folder)));
    throw Error(fmt::format("{}: none of {} checkpoints can be used; the newest: {}", shown(folder),
                            steps.size(), found.refused.front()));
  }
}

Weights read_weights(const fs::path& file_or_folder) {
  std::error_code unknown;  // what cannot be asked about cannot be opened either: that says why
  if (fs::is_directory(file_or_folder, unknown)) {
    FoundCheckpoint found = newest_checkpoint(file_or_folder);
    return {.file = weights_path(file_or_folder, found.checkpoint.step),
            .tensors = std::move(found.checkpoint.weights),
            .model = std::move(found.checkpoint.model),
            .refused = std::move(found.refused)};
  }
  const auto step = number(after(file_or_folder.stem().string(), "step-").value_or(""));
  const fs::path state_file = fs::path(file_or_folder).replace_extension(".state");
  data::File opened = data::open_file(file_or_folder);
  data::Safetensors content =
      !step || state_file == file_or_folder || is_missing(state_file)
          ? data::read_safetensors(std::move(opened), file_or_folder)
          : read_weights_of(read_state(data::open_file(state_file), state_file, *step), state_file,
                            std::move(opened), file_or_folder);
  if (const auto format = content.metadata.find("format");
      format == content.metadata.end() || format->second != kWeightsFormat)
    throw Error(
        fmt::format("{}: is not Lockstep's, which says \"format\": \"{}\" in its metadata: ./lab import "
                    "makes one of PyTorch's",
                    shown(file_or_folder), kWeightsFormat));
  return {.file = file_or_folder,
          .tensors = std::move(content.tensors),
          .model = model_of(std::move(content.metadata)),
          .refused = {}};
}

namespace {

fs::path made_folder(fs::path folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw Error(fmt::format("{}: cannot be made: {}", shown(folder), failed.message()));
  return folder;
}

}  // namespace

CheckpointWriter::CheckpointWriter(const fs::path& folder, int64_t keep)
    : folder_(folder), keep_(keep), lock_(made_folder(folder)) {
  if (keep < 1) throw Error(fmt::format("asked to keep {} checkpoints: keep 1 or more", keep));
  remove_leftovers();
  const fs::path probe = folder_ / "step-probe";
  data::replace_file(probe, "");
  remove_entry(probe);
}

// This process has written nothing yet: a file with its number is from another one that had it before.
void CheckpointWriter::remove_leftovers() const {
  for_each_name(folder_, [this](const std::string& name) {
    const auto process = process_of_partial(name);
    if (process && (*process == getpid() || !process_is_alive(*process))) remove_entry(folder_ / name);
  });
}

void CheckpointWriter::resume_from(int64_t step) {
  unusable_.clear();
  for (const int64_t other : checkpoint_steps(folder_)) {
    if (other <= step) continue;
    for (const fs::path& file : {state_path(folder_, other), weights_path(folder_, other)})
      if (is_filled_folder(file))
        throw Error(fmt::format(
            "{}: is a folder that is not empty, expected a file of this run: move it away", shown(file)));
    unusable_.push_back(other);
  }
}

void CheckpointWriter::replace_state(const Checkpoint& checkpoint) const {
  data::Safetensors state;
  add_prefixed(state.tensors, kOptimizer, checkpoint.optimizer);
  for (size_t r = 0; r < checkpoint.replicas.size(); ++r)
    add_prefixed(state.tensors, replica_prefix(static_cast<int64_t>(r)), checkpoint.replicas[r]);
  for (const auto& [key, value] : checkpoint.run) state.metadata[kRun + key] = value;
  state.metadata["format"] = kStateFormat;
  state.metadata["step"] = std::to_string(checkpoint.step);
  state.metadata["replicas"] = std::to_string(checkpoint.replicas.size());
  state.metadata["weights_sha256"] = sha256_of_file(weights_path(folder_, checkpoint.step));
  state.metadata["sha256"] = digest_of(state);
  data::write_safetensors(state_path(folder_, checkpoint.step), state.tensors, state.metadata);
}

void CheckpointWriter::save(const Checkpoint& checkpoint, Old old) {
  const fs::path weights_file = weights_path(folder_, checkpoint.step);
  const fs::path state_file = state_path(folder_, checkpoint.step);
  try {
    remove_entry(state_file);  // of a damaged one with this step
    remove_entry(weights_file);
    Metadata about = checkpoint.model;
    about["format"] = kWeightsFormat;
    about["step"] = std::to_string(checkpoint.step);
    data::write_safetensors(weights_file, checkpoint.weights, about);
    replace_state(checkpoint);
  } catch (...) {
    std::error_code ignored;
    fs::remove(state_file, ignored);
    fs::remove(weights_file, ignored);
    throw;
  }
  std::erase(unusable_, checkpoint.step);
  if (old == Old::remove) remove_old(checkpoint.step);
}

void CheckpointWriter::remove(int64_t step) const {
  // The state first: weights alone are no checkpoint, but hold more.
  for (const fs::path& file : {state_path(folder_, step), weights_path(folder_, step)})
    if (!is_filled_folder(file)) remove_entry(file);
}

void CheckpointWriter::remove_old(int64_t newest) const {
  int64_t kept = 0;
  const std::vector<int64_t> steps = checkpoint_steps(folder_);
  for (const int64_t step : std::views::reverse(steps)) {
    if (step <= newest && kept == keep_) {
      remove(step);
    } else if (std::ranges::find(unusable_, step) == unusable_.end()) {
      ++kept;
    }
  }
}

}  // namespace lockstep::nn
