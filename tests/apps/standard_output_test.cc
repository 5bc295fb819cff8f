// What every program does where its standard output cannot be written: a full disk, a closed descriptor, a
// pipe that nobody reads any more.
#include <fcntl.h>
#include <fmt/format.h>

#include "tests/apps/saved_lenet.h"
#include "tests/apps/training_run.h"

namespace lockstep::apps {
namespace {

class StandardOutput : public TrainingRun {
 protected:
  StandardOutput() {
    const Model model = named_model({{"model", "lenet"}});
    std::array<double, 10> probabilities;
    probabilities.fill(0.1);
    write_weights(path("ours"), lenet_that_says(probabilities, model), model.description);
    EXPECT_EQ(run_program({EXPORT, path("ours"), path("theirs")}).exit_code, 0);
  }

  // In a shell, for its redirections.
  Outcome shell(const std::string& command) const {
    return run_program({"/bin/bash", "-c", command},
                       {"HOSTCUDA_THREADS=1", "LOCKSTEP_DATA=" + images_.path()});
  }
  std::string train(const std::string& more = "", int epochs = 1) const {
    return fmt::format("{} --epochs {} --batch-size 50 {}", TRAIN_LENET, epochs, more);
  }
  // Each program at work, and its help.
  std::vector<std::string> commands() const {
    std::vector<std::string> all{train(), fmt::format("{} --checkpoint {}", PREDICT, path("ours")),
                                 fmt::format("{} {} {}", EXPORT, path("ours"), path("out")),
                                 fmt::format("{} {} {}", IMPORT, path("theirs"), path("out"))};
    for (const char* program : {TRAIN_LENET, TRAIN_RESNET18, PREDICT, EXPORT, IMPORT})
      all.push_back(fmt::format("{} --help", program));
    return all;
  }
};

TEST_F(StandardOutput, ThatIsFullIsAnError) {
  for (const std::string& command : commands()) {
    const Outcome outcome = shell(command + " > /dev/full");
    EXPECT_EQ(outcome.exit_code, 1) << command;
    const std::string name = std::filesystem::path(command.substr(0, command.find(' '))).filename();
    EXPECT_EQ(outcome.error, name + ": standard output: cannot write: No space left on device\n") << command;
  }
}

TEST_F(StandardOutput, ThatIsClosedIsAnErrorAndNoOtherFileGetsWhatIsPrinted) {
  for (const std::string& command : commands()) {
    const Outcome outcome = shell(command + " >&-");
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    EXPECT_NE(outcome.error.find("standard output: cannot write: Bad file descriptor"), std::string::npos)
        << outcome.error;
  }
  shell(train("--json " + path("run.json") + " >&-"));
  std::ifstream json(path("run.json"));
  for (std::string line; std::getline(json, line);) EXPECT_TRUE(line.starts_with("{\"")) << line;
}

TEST_F(StandardOutput, ThatNobodyReadsEndsTheProgramQuietly) {
  for (const std::string& command : commands()) {
    const Outcome outcome = shell(command + " | true; exit ${PIPESTATUS[0]}");
    // 0: all of it was in the pipe before `true` ended.
    EXPECT_TRUE(outcome.exit_code == 128 + SIGPIPE || outcome.exit_code == 0) << outcome.exit_code;
    EXPECT_EQ(outcome.error, "") << command;
  }
  const Outcome outcome = shell(train("--schedule constant | head -3; exit ${PIPESTATUS[0]}", 1000000));
  EXPECT_EQ(outcome.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(count_lines(outcome.out), 3) << outcome.out;
}

TEST_F(StandardOutput, ThatIsNotNeededMayBeAnything) {
  for (const char* where : {"> /dev/full", ">&-"})
    EXPECT_EQ(shell(train("--quiet " + std::string(where))).exit_code, 0) << where;
}

TEST_F(StandardOutput, IsWrittenBeforeTheErrorThatFollows) {
  const Outcome outcome =
      shell(train("--lr 1e20 --schedule constant > " + path("log") + " 2>&1; cat " + path("log")));
  const size_t table = outcome.out.find("44426 parameters"), error = outcome.out.find("train_lenet: ");
  ASSERT_NE(table, std::string::npos) << outcome.out;
  ASSERT_NE(error, std::string::npos) << outcome.out;
  EXPECT_LT(table, error) << outcome.out;
  EXPECT_EQ(outcome.out.find('\n', error), outcome.out.size() - 1) << "the error is the last line";
}

TEST_F(StandardOutput, AnErrorThatCannotBeToldIsAnErrorAllTheSame) {
  for (const char* where : {"2> /dev/full", "2>&-"}) {
    EXPECT_EQ(shell(train("--lr -1 " + std::string(where))).exit_code, shell(train("--lr -1")).exit_code)
        << where;
    EXPECT_EQ(shell(train("--no-such-option " + std::string(where))).exit_code,
              shell(train("--no-such-option")).exit_code)
        << where;
  }
}

}  // namespace
}  // namespace lockstep::apps
