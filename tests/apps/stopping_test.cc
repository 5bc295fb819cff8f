// Runs that are asked to stop: which signals ask, what is said at once, and that a run that stops while it
// evaluates has saved the epoch and goes on to the bits of one that was not stopped.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "apps/common/interrupt.h"
#include "nn/io/checkpoint.h"
#include "tests/apps/training_run.h"

namespace lockstep::apps {
namespace {

// Ignored in this process, and so in the programs that it starts.
class Ignored {
 public:
  explicit Ignored(int signal) : signal_(signal), before_(std::signal(signal, SIG_IGN)) {}
  ~Ignored() { std::signal(signal_, before_); }
  Ignored(const Ignored&) = delete;
  Ignored& operator=(const Ignored&) = delete;

 private:
  int signal_;
  void (*before_)(int);
};

class Stopping : public TrainingRun {
 protected:
  std::vector<std::string> endless(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command{TRAIN_LENET,    "--data-dir", images_.path(), "--epochs", "1000000",
                                     "--batch-size", "50",         "--schedule",   "constant"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  static bool trains(const std::string& out) { return out.find("images/s") != out.npos; }
};

TEST_F(Stopping, EachSignalThatAsksForItStopsTheRun) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Outcome outcome = run_and_signal(endless(), {}, trains, {signal});
    EXPECT_EQ(outcome.exit_code, kExitInterrupted) << "signal " << signal;
    EXPECT_TRUE(outcome.error.starts_with(
        "stopping after this step; nothing is saved without --checkpoint; Ctrl-C again ends at once\n"
        "interrupted after step "))
        << outcome.error;
    EXPECT_EQ(count_lines(outcome.error), 2) << outcome.error;
  }
}

TEST_F(Stopping, ASignalThatWasIgnoredAtTheStartStaysIgnored) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Ignored ignored(signal);
    const Outcome outcome =
        run_and_signal({TRAIN_LENET, "--data-dir", images_.path(), "--epochs", "40", "--batch-size", "50"},
                       {}, trains, {signal});
    EXPECT_EQ(outcome.exit_code, 0) << "signal " << signal << ": " << outcome.error;
    EXPECT_EQ(outcome.error, "");
    EXPECT_NE(outcome.out.find("\n   40 "), outcome.out.npos) << outcome.out;
  }
}

// As `timeout` sends it: to the process, and to its group.
TEST_F(Stopping, TwoSignalsAtOnceAreOne) {
  const std::vector<std::string> saving{"--checkpoint", path("run"), "--checkpoint-every", "1000000"};
  const Outcome outcome = run_and_signal(endless(saving), {}, trains, {SIGTERM, SIGTERM, SIGINT});
  EXPECT_EQ(outcome.exit_code, kExitInterrupted);
  EXPECT_TRUE(outcome.error.starts_with(
      "stopping after this step; a checkpoint will be written; Ctrl-C again ends at once\n"))
      << outcome.error;
  EXPECT_EQ(count_lines(outcome.error), 2) << outcome.error;
  EXPECT_EQ(nn::checkpoint_steps(path("run")).size(), 1U);
}

TEST(Interrupt, ASecondOneLaterEndsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // other tests of this program start threads
  const auto twice = [] {
    catch_interrupts("will stop");
    raise(SIGTERM);
    if (!interrupted()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    raise(SIGTERM);
  };
  EXPECT_EXIT(twice(), testing::KilledBySignal(SIGTERM), "will stop\n");
}

// ResNet-18 takes seconds to evaluate 1,500 images, so the signal comes while it does: after the checkpoint
// of the epoch is whole.
class StoppingInEvaluation : public TrainingRun {
 protected:
  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"--data-dir",   data_.path(), "--devices", "2",  "--stem", "imagenet",
                                   "--epochs",     "2",          "--limit",   "32", "--json", path("r.json"),
                                   "--batch-size", "16"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<std::string> command(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = arguments(more);
    words.insert(words.begin(), TRAIN_RESNET18);
    return words;
  }
  // The report's lines of epochs and totals without times, which differ from run to run.
  std::vector<nlohmann::json> results() const {
    std::ifstream in(path("r.json"));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) {
      nlohmann::json parsed = nlohmann::json::parse(line);
      for (const char* key : {"seconds", "images_per_second", "allreduce_share", "peak_memory_bytes"})
        parsed.erase(key);
      if (!parsed.contains("version")) lines.push_back(parsed);
    }
    return lines;
  }

  // What is printed from a line's start, or after a bar that is redrawn, fits a terminal.
  void expect_lines_of_80_columns(const std::string& out) const {
    size_t begin = 0;
    for (size_t end; begin < out.size(); begin = end + 1) {
      end = std::min(out.find_first_of("\r\n", begin), out.size());
      std::string line = out.substr(begin, end - begin);
      if (line.starts_with("\033[K")) line.erase(0, 3);
      EXPECT_TRUE(line.size() <= 80 || line.find('/') != line.npos) << line;  // but for a line with a path
    }
  }

  const SmallFashionMnist data_{40, 1500};
};

TEST_F(StoppingInEvaluation, TheEpochIsSavedAndTheResumedRunEndsAsIfNothingHadHappened) {
  const std::vector<std::string> environment{"HOSTCUDA_THREADS=1"};
  const Outcome whole = run_program(command(), environment);
  ASSERT_EQ(whole.exit_code, 0) << whole.error;
  const auto expected = results();
  ASSERT_EQ(expected.size(), 3U);

  for (const std::string every : {"0", "1000"}) {  // 1000: no checkpoint is due after the first epoch
    const std::string folder = path("every" + every);
    std::vector<std::string> saving{"--checkpoint", folder};
    if (every != "0") saving.insert(saving.end(), {"--checkpoint-every", every});
    const auto evaluates = [&](const std::string& out) {
      return every == "0" ? std::filesystem::exists(nn::state_path(folder, 2))
                          : out.find("epoch 1/2 test") != out.npos;
    };
    const Outcome stopped = run_in_terminal(command(saving), environment, evaluates, {SIGTERM});
    EXPECT_EQ(stopped.exit_code, kExitInterrupted) << stopped.error;
    EXPECT_EQ(nn::checkpoint_steps(folder), std::vector<int64_t>{2});
    expect_lines_of_80_columns(stopped.out);
    EXPECT_TRUE(results().empty()) << "the first epoch was evaluated before the signal came";

    saving.emplace_back("--resume");
    const Outcome resumed = run_program(command(saving), environment);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.error;
    EXPECT_EQ(results(), expected);
  }
}

}  // namespace
}  // namespace lockstep::apps
