// One writer a folder at a time, on file systems with locks and without.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "tests/nn/checkpoint_folder.h"

namespace {
bool file_system_has_locks = true;
}

// In place of the C library's, for file systems that have no locks.
extern "C" int flock(int file, int operation) {
  if (file_system_has_locks) return static_cast<int>(syscall(SYS_flock, file, operation));
  errno = ENOLCK;
  return -1;
}

namespace lockstep::nn {
namespace {

// A process that holds the folder until it is killed; returns when it has it.
pid_t start_writer(const fs::path& folder) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const CheckpointWriter writer(folder, 1);
    if (write(ends[1], "x", 1) == 1) pause();
    _exit(1);
  }
  close(ends[1]);
  char ready = 0;
  EXPECT_EQ(::read(ends[0], &ready, 1), 1);
  close(ends[0]);
  return child;
}

void kill_and_wait(pid_t process) {
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
}

class CheckpointFolderLock : public CheckpointFolder, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { file_system_has_locks = GetParam(); }
  void TearDown() override { file_system_has_locks = true; }
};
INSTANTIATE_TEST_SUITE_P(FileSystem, CheckpointFolderLock, testing::Bool(),
                         [](const auto& has) { return has.param ? "WithLocks" : "WithoutLocks"; });

TEST_P(CheckpointFolderLock, HasOneWriterAtATimeAndSaysWhichProcessThatIs) {
  const pid_t other = start_writer(path());
  EXPECT_EQ(error_of([&] { CheckpointWriter(path(), 1); }),
            path().string() + ": another run saves its checkpoints here, process " + std::to_string(other) +
                ": use another folder, or wait for its end");
  kill_and_wait(other);
  {
    const CheckpointWriter next(path(), 1);
  }
  EXPECT_EQ(files(), std::vector<std::string>{}) << "nothing stays behind";
}

TEST_P(CheckpointFolderLock, TakesOverWhatADeadProcessLeft) {
  const pid_t ended = start_writer(path());
  kill_and_wait(ended);
  EXPECT_EQ(files(), std::vector<std::string>{"lock"});
  const CheckpointWriter next(path(), 1);
  const Bytes content = content_of(path() / "lock");
  EXPECT_EQ(std::string(content.begin(), content.end()).find(std::to_string(getpid()) + " "), 0U);
}

TEST_P(CheckpointFolderLock, DoesNotOpenWhatIsNoFile) {
  fs::create_directories(path());
  ASSERT_EQ(mkfifo((path() / "lock").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { CheckpointWriter(path(), 1); }),
            (path() / "lock").string() + ": found a FIFO, expected a regular file");
}

TEST_F(CheckpointFolder, HasOneWriterAtATimeInAProcessToo) {
  const CheckpointWriter writer(path(), 1);
  EXPECT_NE(error_of([&] { CheckpointWriter(path(), 1); }).find("another run saves its checkpoints here"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::nn
