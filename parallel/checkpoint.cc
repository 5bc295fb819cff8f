// The order of writing makes the promise: weights, then the state that names their SHA-256, then the removal
// of old ones. Whenever the process ends, the newest pair that is whole is a checkpoint.
#include "parallel/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "core/device.h"
#include "core/sha256.h"
#include "kernels/check.h"
#include "nn/data/replace_file.h"

namespace lockstep::parallel {
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

std::string sha256_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  Sha256 digest;
  std::vector<char> block(1 << 20);
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    digest.update(std::as_bytes(std::span(block).first(static_cast<size_t>(file.gcount()))));
  }
  if (!file.eof()) throw Error(fmt::format("{}: cannot read: {}", path.string(), std::strerror(errno)));
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
    throw Error(fmt::format("{}: is not Lockstep's: its metadata have no \"{}\"", path.string(), key));
  return found->second;
}

void check_format(const Metadata& metadata, const char* wanted, const fs::path& path) {
  const std::string& format = entry(metadata, "format", path);
  if (format != wanted)
    throw Error(
        fmt::format("{}: its format is {:?}, this program reads {:?}", path.string(), format, wanted));
}

data::Safetensors read_state(const fs::path& path, int64_t step) {
  data::Safetensors state = data::read_safetensors(path);
  check_format(state.metadata, kStateFormat, path);
  if (entry(state.metadata, "sha256", path) != digest_of(state))
    throw Error(
        fmt::format("{}: is damaged: its content does not have the SHA-256 that it names", path.string()));
  if (const std::string& named = entry(state.metadata, "step", path); named != std::to_string(step))
    throw Error(fmt::format("{}: is of step {}: it has been renamed", path.string(), named));
  return state;
}

void check_weights_digest(const fs::path& path, const std::string& wanted, const fs::path& state) {
  if (sha256_of_file(path) != wanted)
    throw Error(fmt::format("{}: is damaged, or of another run: its SHA-256 is not the one in {}",
                            path.string(), state.filename().string()));
}

// Of the form NAME.<process>.partial (nn/data/replace_file.h): the process that writes it.
std::optional<int64_t> process_of_partial(const std::string& name) {
  constexpr std::string_view kEnd = ".partial";
  if (!name.starts_with("step-") || !name.ends_with(kEnd)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(0, name.size() - kEnd.size());
  const size_t dot = rest.rfind('.');
  return dot == rest.npos ? std::nullopt : number(rest.substr(dot + 1));
}

bool is_alive(int64_t process) {
  return kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH;
}

// What `read` gives for the newest checkpoint for which it throws nothing.
template <typename Read>
auto newest(const fs::path& folder, std::vector<std::string>& refused, const Read& read) {
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) try {
      return read(*step);
    } catch (const Error& error) {
      refused.emplace_back(error.what());
    }
  if (refused.empty()) throw Error(fmt::format("{}: there is no checkpoint in it", folder.string()));
  throw Error(fmt::format("{}: none of {} checkpoints can be used; the newest: {}", folder.string(),
                          steps.size(), refused.front()));
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
  std::error_code missing;
  for (const auto& file : fs::directory_iterator(folder, missing)) {
    const auto step = number(after(file.path().stem().string(), "step-").value_or(""));
    if (step && (file.path() == weights_path(folder, *step) || file.path() == state_path(folder, *step)))
      steps.insert(*step);
  }
  if (missing && missing != std::errc::no_such_file_or_directory)
    throw Error(fmt::format("{}: cannot be read: {}", folder.string(), missing.message()));
  return {steps.begin(), steps.end()};
}

Checkpoint read_checkpoint(const fs::path& folder, int64_t step) {
  const fs::path weights_file = weights_path(folder, step), state_file = state_path(folder, step);
  if (!fs::exists(state_file))
    throw Error(fmt::format("{}: the state file beside it is missing: the run ended while it saved",
                            weights_file.string()));
  if (!fs::exists(weights_file))
    throw Error(fmt::format("{}: the weights file beside it is missing", state_file.string()));
  data::Safetensors state = read_state(state_file, step);
  check_weights_digest(weights_file, entry(state.metadata, "weights_sha256", state_file), state_file);
  data::Safetensors weights = data::read_safetensors(weights_file);
  check_format(weights.metadata, kWeightsFormat, weights_file);
  weights.metadata.erase("format");
  weights.metadata.erase("step");

  Checkpoint checkpoint{.step = step,
                        .weights = std::move(weights.tensors),
                        .model = std::move(weights.metadata),
                        .optimizer = {},
                        .replicas = {},
                        .run = {}};
  const std::string& replicas = entry(state.metadata, "replicas", state_file);
  if (const auto count = number(replicas); count && *count <= kMaxDevices)
    checkpoint.replicas.resize(static_cast<size_t>(*count));
  else
    throw Error(fmt::format("{}: names {:?} replicas", state_file.string(), replicas));
  for (HostTensor& tensor : state.tensors) {
    std::vector<HostTensor>* part = &checkpoint.optimizer;
    std::optional<std::string> name = after(tensor.name, kOptimizer);
    for (size_t r = 0; r < checkpoint.replicas.size() && !name; ++r) {
      part = &checkpoint.replicas[r];
      name = after(tensor.name, replica_prefix(static_cast<int64_t>(r)));
    }
    if (!name) throw Error(fmt::format("{}: has a tensor {:?} of no part", state_file.string(), tensor.name));
    tensor.name = *name;
    part->push_back(std::move(tensor));
  }
  for (const auto& [key, value] : state.metadata)
    if (const auto name = after(key, kRun)) checkpoint.run[*name] = value;
  return checkpoint;
}

FoundCheckpoint newest_checkpoint(const fs::path& folder) {
  FoundCheckpoint found;
  found.checkpoint =
      newest(folder, found.refused, [&folder](int64_t step) { return read_checkpoint(folder, step); });
  return found;
}

Weights read_weights(const fs::path& file_or_folder) {
  Weights weights;
  if (fs::is_directory(file_or_folder)) {
    const FoundCheckpoint found = newest_checkpoint(file_or_folder);
    weights.file = weights_path(file_or_folder, found.checkpoint.step);
    weights.refused = found.refused;
  } else {
    weights.file = file_or_folder;
    const auto step = number(after(weights.file.stem().string(), "step-").value_or(""));
    const fs::path state_file = fs::path(weights.file).replace_extension(".state");
    if (step && fs::exists(state_file))
      check_weights_digest(weights.file,
                           entry(read_state(state_file, *step).metadata, "weights_sha256", state_file),
                           state_file);
  }
  data::Safetensors content = data::read_safetensors(weights.file);
  if (const auto format = content.metadata.find("format");
      format == content.metadata.end() || format->second != kWeightsFormat)
    throw Error(
        fmt::format("{}: is not Lockstep's, which says \"format\": \"{}\" in its metadata: ./lab import "
                    "makes one of PyTorch's",
                    weights.file.string(), kWeightsFormat));
  weights.tensors = std::move(content.tensors);
  weights.model = std::move(content.metadata);
  return weights;
}

CheckpointWriter::CheckpointWriter(const fs::path& folder, int64_t keep) : folder_(folder), keep_(keep) {
  if (keep < 1) throw Error(fmt::format("asked to keep {} checkpoints: keep 1 or more", keep));
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) throw Error(fmt::format("{}: cannot be made: {}", folder_.string(), failed.message()));
  lock_ = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) throw Error(fmt::format("{}: cannot be opened: {}", folder_.string(), std::strerror(errno)));
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(lock_);
    throw Error(
        fmt::format("{}: another run saves its checkpoints here: use another folder", folder_.string()));
  }
  try {
    remove_leftovers();
    const fs::path probe = folder_ / "step-probe";
    data::replace_file(probe, {});
    fs::remove(probe);
  } catch (...) {
    close(lock_);
    throw;
  }
}

CheckpointWriter::~CheckpointWriter() {
  close(lock_);
}

// This process has written nothing yet: a file with its number is from another one that had it before.
void CheckpointWriter::remove_leftovers() const {
  for (const auto& file : fs::directory_iterator(folder_)) {
    const auto process = process_of_partial(file.path().filename().string());
    if (process && (*process == getpid() || !is_alive(*process))) fs::remove(file.path());
  }
}

void CheckpointWriter::resume_from(int64_t step) {
  unusable_.clear();
  for (const int64_t other : checkpoint_steps(folder_))
    if (other > step) unusable_.push_back(other);
}

void CheckpointWriter::write_state(const Checkpoint& checkpoint) const {
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
    fs::remove(state_file);  // of a damaged one with this step
    Metadata about = checkpoint.model;
    about["format"] = kWeightsFormat;
    about["step"] = std::to_string(checkpoint.step);
    data::write_safetensors(weights_file, checkpoint.weights, about);
    write_state(checkpoint);
  } catch (...) {
    std::error_code ignored;
    fs::remove(state_file, ignored);
    fs::remove(weights_file, ignored);
    throw;
  }
  std::erase(unusable_, checkpoint.step);
  if (old == Old::remove) remove_old(checkpoint.step);
}

void CheckpointWriter::replace_state(const Checkpoint& checkpoint) {
  write_state(checkpoint);
  remove_old(checkpoint.step);
}

void CheckpointWriter::remove(int64_t step) const {
  fs::remove(state_path(folder_, step));  // first: weights alone are no checkpoint, but hold more
  fs::remove(weights_path(folder_, step));
}

void CheckpointWriter::remove_old(int64_t newest) const {
  int64_t kept = 0;
  const std::vector<int64_t> steps = checkpoint_steps(folder_);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (*step <= newest && kept == keep_) {
      remove(*step);
    } else if (std::ranges::find(unusable_, *step) == unusable_.end()) {
      ++kept;
    }
  }
}

}  // namespace lockstep::parallel
