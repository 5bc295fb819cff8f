// Checkpoints as files: what is saved comes back, what is damaged is refused by name, and the one before it
// is used.
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <thread>

#include "tests/full_disk.h"
#include "tests/nn/checkpoint_folder.h"

namespace lockstep::nn {
namespace {

TEST_F(CheckpointFolder, GivesBackWhatWasSaved) {
  save({7, 123});
  EXPECT_EQ(files(), (std::vector<std::string>{"step-000000007.safetensors", "step-000000007.state",
                                               "step-000000123.safetensors", "step-000000123.state"}));
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<int64_t>{7, 123}));
  const FoundCheckpoint found = newest_checkpoint(path());
  EXPECT_EQ(found.checkpoint, checkpoint(123));
  EXPECT_TRUE(found.refused.empty());
  EXPECT_EQ(read_checkpoint(path(), 7), checkpoint(7));
}

TEST_F(CheckpointFolder, HasTheWeightsInAFileForEverybody) {
  save({5});
  const data::Safetensors file = data::read_safetensors(weights_path(path(), 5));
  EXPECT_EQ(file.tensors, checkpoint(5).weights);
  EXPECT_EQ(
      file.metadata,
      (std::map<std::string, std::string>{
          {"format", "lockstep 1"}, {"model", "small"}, {"step", "5"}, {"variant", "a \"quoted\" one"}}));
}

TEST_F(CheckpointFolder, HoldsACheckpointWithoutOptimizerAndBuffers) {
  const Checkpoint bare{.step = 1,
                        .weights = checkpoint(1).weights,
                        .model = {{"model", "small"}},
                        .optimizer = {},
                        .replicas = {{}, {}},
                        .run = {}};
  CheckpointWriter(path(), 1).save(bare);
  EXPECT_EQ(newest_checkpoint(path()).checkpoint, bare);
}

TEST_F(CheckpointFolder, KeepsTheNewest) {
  save({1, 2, 3, 4, 5}, 2);
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(files().size(), 4U);
}

TEST_F(CheckpointFolder, DoesNotKeepAnUnusableOneInPlaceOfAGoodOne) {
  save({1, 2, 9});
  put(state_path(path(), 9), {});
  CheckpointWriter writer(path(), 3);
  writer.resume_from(newest_checkpoint(path()).checkpoint.step);
  writer.save(checkpoint(3));
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<int64_t>{1, 2, 3, 9})) << "three good ones";
  writer.save(checkpoint(10));
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<int64_t>{2, 3, 9, 10}));
  writer.save(checkpoint(11));
  writer.save(checkpoint(12));
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<int64_t>{10, 11, 12}));
}

TEST_F(CheckpointFolder, OverwritesADamagedOneOfTheSameStep) {
  save({1, 2});
  put(weights_path(path(), 2), {1, 2, 3});
  CheckpointWriter writer(path(), 2);
  writer.resume_from(1);
  writer.save(checkpoint(2));
  EXPECT_EQ(newest_checkpoint(path()).checkpoint, checkpoint(2));
  writer.save(checkpoint(3));
  EXPECT_EQ(checkpoint_steps(path()), (std::vector<int64_t>{2, 3}));
}

TEST_F(CheckpointFolder, RefusesEveryTruncationAndUsesTheOneBefore) {
  save({1, 2});
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 generator(seed);
  for (const fs::path& file : {weights_path(path(), 2), state_path(path(), 2)}) {
    const Bytes whole = content_of(file);
    for (int i = 0; i < 40; ++i) {
      const size_t length = i == 0 ? 0 : i == 1 ? whole.size() - 1 : generator() % whole.size();
      SCOPED_TRACE(testing::Message() << file << " cut to " << length << " of " << whole.size() << " bytes");
      put(file, Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
      expect_refused(file, "");
    }
    put(file, whole);
  }
  EXPECT_EQ(newest_checkpoint(path()).checkpoint, checkpoint(2));
}

TEST_F(CheckpointFolder, RefusesAFlippedBitAnywhereAndUsesTheOneBefore) {
  save({1, 2});
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 generator(seed);
  for (const fs::path& file : {weights_path(path(), 2), state_path(path(), 2)}) {
    const Bytes whole = content_of(file);
    for (size_t bit = generator() % 5; bit < 8 * whole.size(); bit += 5) {
      flip(file, bit);
      try {
        read_checkpoint(path(), 2);
        FAIL() << file << " with bit " << bit << " flipped was taken";
      } catch (const Error& error) {
        ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
        ASSERT_NE(std::string(error.what()).find(file.stem().string()), std::string::npos) << error.what();
      }
      flip(file, bit);
    }
    flip(file, 77);
    expect_refused(file, "");
    flip(file, 77);
  }
  EXPECT_EQ(newest_checkpoint(path()).checkpoint, checkpoint(2));
}

TEST_F(CheckpointFolder, SaysWhatIsWrongWithEach) {
  save({1, 2});
  const fs::path weights = weights_path(path(), 2), state = state_path(path(), 2);
  const Bytes whole_weights = content_of(weights), whole_state = content_of(state);
  fs::remove(state);
  expect_refused(weights, "the state file beside it is missing");
  put(state, whole_state);
  fs::remove(weights);
  expect_refused(state, "the weights file beside it is missing");
  put(weights, content_of(weights_path(path(), 1)));
  expect_refused(weights, "is damaged, or of another run");
  put(weights, whole_weights);
  put(state, content_of(state_path(path(), 1)));
  expect_refused(state, "is of step 1: it has been renamed");
  put(state, whole_weights);
  expect_refused(state, "its format is \"lockstep 1\", this program reads \"lockstep state 1\"");
  data::write_safetensors(state, {tensor("x", {1})});
  expect_refused(state, "is not Lockstep's");
  put(state, {'h', 'e', 'l', 'l', 'o'});
  expect_refused(state, "found 5 bytes");
}

// What makes a file that nobody can read, each with what the message about it says.
struct Unreadable {
  const char* reason;
  std::function<void(const fs::path&)> make;
};
const std::vector<Unreadable> kUnreadable = {
    {"cannot open: Too many levels of symbolic links",
     [](const fs::path& path) { fs::create_symlink(path.filename(), path); }},
    {"found a directory, expected a regular file", [](const fs::path& path) { fs::create_directory(path); }},
    {"found a FIFO, expected a regular file",
     [](const fs::path& path) { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); }},
    {"found a device, expected a regular file",
     [](const fs::path& path) { fs::create_symlink("/dev/zero", path); }},
    {"cannot open: No such file or directory",
     [](const fs::path& path) { fs::create_symlink("nowhere", path); }},
};

TEST_F(CheckpointFolder, PassesOverWhatIsNoRegularFile) {
  for (const Unreadable& unreadable : kUnreadable)
    for (const auto file_of : {state_path, weights_path}) {
      SCOPED_TRACE(unreadable.reason);
      fs::remove_all(path());
      save({1, 2});
      const fs::path file = file_of(path(), 2);
      fs::remove(file);
      unreadable.make(file);
      expect_refused(file, unreadable.reason);
      EXPECT_EQ(read_weights(path()).tensors, checkpoint(1).weights);
      // A run that goes on from the one before replaces it.
      CheckpointWriter writer(path(), 2);
      writer.resume_from(1);
      writer.save(checkpoint(2));
      EXPECT_EQ(newest_checkpoint(path()).checkpoint, checkpoint(2));
    }
}

TEST_F(CheckpointFolder, AFolderInTheWayIsNamedWhenARunGoesOnAndLeftAloneAfterwards) {
  save({1, 2, 3});
  fs::remove(state_path(path(), 3));
  fs::create_directories(state_path(path(), 3) / "mine");
  {
    CheckpointWriter writer(path(), 1);
    EXPECT_EQ(error_of([&] { writer.resume_from(2); }),
              state_path(path(), 3).string() +
                  ": is a folder that is not empty, expected a file of this run: "
                  "move it away");
    writer.save(checkpoint(4));  // and removes 1 and 2, but not what is no checkpoint's
  }
  EXPECT_TRUE(fs::exists(state_path(path(), 3) / "mine"));
  EXPECT_EQ(newest_checkpoint(path()).checkpoint, checkpoint(4));
}

// What `read` says where the system checks access, which it does not for root; without "lockstep::Error" for
// any other exception.
std::string without_privileges(const std::function<std::string()>& read) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0))
      _exit(3);
    std::string said;
    try {
      said = read();
    } catch (const std::exception& exception) {
      said = std::string("exception: ") + exception.what();
    }
    _exit(write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 4);
  }
  close(ends[1]);
  std::string said(4096, '\0');
  const ssize_t count = ::read(ends[0], said.data(), said.size());
  said.resize(count > 0 ? static_cast<size_t>(count) : 0);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return said;
}

TEST_F(CheckpointFolder, PassesOverWhatMayNotBeRead) {
  save({1, 2});
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);  // for a process that drops its privileges
  const fs::path file = state_path(path(), 2);
  ASSERT_EQ(chmod(file.c_str(), 0), 0);
  const auto newest = [&] {
    const FoundCheckpoint found = newest_checkpoint(path());
    return std::to_string(found.checkpoint.step) + " " + found.refused.at(0);
  };
  EXPECT_EQ(without_privileges(newest), "1 " + file.string() + ": cannot open: Permission denied");
  // A link into a folder that may not be entered.
  const fs::path locked = folder_.path() / "locked";
  fs::create_directory(locked);
  fs::rename(file, locked / "state");
  fs::create_symlink(locked / "state", file);
  ASSERT_EQ(chmod(locked.c_str(), 0), 0);
  EXPECT_EQ(without_privileges(newest), "1 " + file.string() + ": cannot open: Permission denied");
  // The folder itself.
  ASSERT_EQ(chmod(path().c_str(), 0), 0);
  EXPECT_EQ(without_privileges([&] { return error_of([&] { newest_checkpoint(path()); }); }),
            path().string() + ": cannot be read: Permission denied");
  EXPECT_EQ(without_privileges([&] { return error_of([&] { read_weights(weights_path(path(), 1)); }); }),
            weights_path(path(), 1).string() + ": cannot open: Permission denied");
  chmod(path().c_str(), 0700);
  chmod(locked.c_str(), 0700);
}

TEST_F(CheckpointFolder, CanBeReadWhileARunSavesAndRemovesInIt) {
  save({1});
  const std::jthread run([&](const std::stop_token& over) {
    CheckpointWriter writer(path(), 1);
    for (int64_t step = 2; !over.stop_requested(); ++step) writer.save(checkpoint(step));
  });
  int64_t last = 1;
  for (int i = 0; i < 300; ++i) {
    const FoundCheckpoint found = newest_checkpoint(path());
    EXPECT_EQ(found.checkpoint, checkpoint(found.checkpoint.step));
    EXPECT_GE(found.checkpoint.step, last);
    last = found.checkpoint.step;
    const Weights weights = read_weights(path());
    EXPECT_EQ(weights.tensors,
              checkpoint(std::stol(weights.file.stem().string().substr(std::strlen("step-")))).weights);
  }
  EXPECT_GT(last, 1) << "the run saved meanwhile";
}

TEST_F(CheckpointFolder, IsAnErrorWhereNoneCanBeUsed) {
  EXPECT_EQ(error_of([&] { newest_checkpoint(path()); }), path().string() + ": there is no checkpoint in it");
  save({1, 2});
  fs::remove(state_path(path(), 1));
  fs::remove(state_path(path(), 2));
  EXPECT_EQ(error_of([&] { newest_checkpoint(path()); }),
            path().string() +
                ": none of 2 checkpoints can be used; the newest: " + weights_path(path(), 2).string() +
                ": the state file beside it is missing: the run ended while it saved");
}

TEST_F(CheckpointFolder, IgnoresFilesOfOtherNames) {
  save({1});
  for (const char* name : {"step-2.state", "step-x.safetensors", "notes.txt", "step-000000003.txt"})
    put(path() / name, {1});
  EXPECT_EQ(checkpoint_steps(path()), std::vector<int64_t>{1});
  save({2}, 1);
  EXPECT_TRUE(fs::exists(path() / "step-2.state"));
}

TEST_F(CheckpointFolder, RemovesWhatKilledProcessesLeftAndNothingElse) {
  save({1});
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  ASSERT_GT(ended, 0);
  waitpid(ended, nullptr, 0);
  const auto partial = [&](pid_t process, const char* name) {
    const fs::path file = path() / (std::string(name) + "." + std::to_string(process) + ".partial");
    put(file, {1, 2, 3});
    return file;
  };
  const fs::path dead = partial(ended, "step-000000002.state"),
                 own = partial(getpid(), "step-000000002.safetensors");
  const fs::path live = partial(getppid(), "step-000000002.state"), other = partial(ended, "thesis");
  save({});
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_FALSE(fs::exists(own));
  EXPECT_TRUE(fs::exists(live));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_EQ(newest_checkpoint(path()).checkpoint, checkpoint(1));
}

TEST_F(CheckpointFolder, AFullDiskLeavesTheEarlierOnesAndNothingOfThisOne) {
  save({1, 2}, 2);
  const std::vector<std::string> before = files();
  Checkpoint large = checkpoint(3);
  large.optimizer = {tensor("fc.weight.velocity", std::vector<float>(1 << 16))};
  {
    CheckpointWriter writer(path(), 2);
    const FileSizeLimit limit(1 << 16);  // room for the weights, not for the state
    EXPECT_EQ(error_of([&] { writer.save(large); }),
              state_path(path(), 3).string() + ": cannot write: File too large");
  }
  EXPECT_EQ(files(), before);
  EXPECT_EQ(newest_checkpoint(path()).checkpoint, checkpoint(2));
}

TEST_F(CheckpointFolder, FindsAtOnceWhatCannotBeWritten) {
  const fs::path file = folder_.write("file", {1});
  EXPECT_EQ(error_of([&] { CheckpointWriter(file / "run", 1); }),
            (file / "run").string() + ": cannot be made: Not a directory");
  EXPECT_NE(error_of([&] { CheckpointWriter(file, 1); }).find(file.string()), std::string::npos);
  EXPECT_NE(error_of([&] { CheckpointWriter("/proc/1", 1); }).find("/proc/1"), std::string::npos)
      << "a folder in which nothing can be made";
  EXPECT_EQ(error_of([&] { CheckpointWriter(path(), 0); }), "asked to keep 0 checkpoints: keep 1 or more");
}

TEST_F(CheckpointFolder, GivesTheWeightsToProgramsThatDoNotTrain) {
  save({1, 2});
  const Weights newest = read_weights(path());
  EXPECT_EQ(newest.tensors, checkpoint(2).weights);
  EXPECT_EQ(newest.file, weights_path(path(), 2));
  EXPECT_EQ(newest.model.at("model"), "small");
  EXPECT_EQ(read_weights(weights_path(path(), 1)).tensors, checkpoint(1).weights);
  // A file that was carried away stands for itself; beside its state it must be the one that was saved.
  fs::copy_file(weights_path(path(), 2), path() / "best.safetensors");
  EXPECT_EQ(read_weights(path() / "best.safetensors").tensors, checkpoint(2).weights);
  put(weights_path(path(), 2), content_of(weights_path(path(), 1)));
  EXPECT_NE(error_of([&] { read_weights(weights_path(path(), 2)); }).find("is damaged, or of another run"),
            std::string::npos);
  EXPECT_EQ(read_weights(path()).refused.size(), 1U);
  data::write_safetensors(path() / "other.safetensors", {tensor("x", {1})});
  EXPECT_NE(error_of([&] { read_weights(path() / "other.safetensors"); }).find("is not Lockstep's"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::nn
