// Runs whose weights stop being numbers: an error that names step and parameter, and the checkpoint that is
// left is one that can be used.
#include "nn/io/checkpoint.h"
#include "tests/apps/training_run.h"

namespace lockstep::apps {
namespace {

class NotFiniteRun : public TrainingRun {
 protected:
  Outcome predict() const {
    return run_program({PREDICT, "--checkpoint", path("run")}, {"LOCKSTEP_DATA=" + images_.path()});
  }
};

// The loss is that of the weights before: no loss shows what the last update did.
TEST_F(NotFiniteRun, TheLastUpdateIsLookedAtToo) {
  for (const std::string program : {TRAIN_LENET, TRAIN_RESNET18}) {
    const bool lenet = program == TRAIN_LENET;
    const Outcome outcome =
        run(program, {"--epochs", "1", "--limit", "16", "--batch-size", "16", "--lr", "1e38",
                      "--weight-decay", "1e10", "--schedule", "constant", "--checkpoint", path("run")});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    EXPECT_NE(outcome.error.find(": after step 1 "), std::string::npos) << outcome.error;
    EXPECT_NE(outcome.error.find(lenet ? " of the 150 values of conv1.weight are NaN or infinite"
                                       : " of the 576 values of conv1.weight are NaN or infinite"),
              std::string::npos)
        << outcome.error;
    EXPECT_EQ(outcome.out.find("test accuracy"), std::string::npos) << outcome.out;
    EXPECT_TRUE(nn::checkpoint_steps(path("run")).empty());
  }
}

// Finite, and so large that no output is.
TEST_F(NotFiniteRun, WeightsThatCannotBeEvaluatedAreNotKept) {
  const std::vector<std::string> arguments{"--limit",      "16",       "--batch-size", "16",
                                           "--lr",         "1e20",     "--schedule",   "constant",
                                           "--checkpoint", path("run")};
  const Outcome outcome = run(TRAIN_LENET, arguments);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.error,
            "train_lenet: after step 1 the model's outputs for image 0 are NaN or infinite: use a smaller "
            "--lr or --clip-norm; there is no checkpoint in " +
                path("run") + " yet\n");
  EXPECT_TRUE(nn::checkpoint_steps(path("run")).empty());
}

TEST_F(NotFiniteRun, LeavesTheLastCheckpointThatIsGood) {
  for (const char* rate : {"100", "10000", "1e9"}) {
    std::filesystem::remove_all(path("run"));
    const Outcome outcome =
        run(TRAIN_LENET,
            {"--batch-size", "16", "--lr", rate, "--clip-norm", "0", "--schedule", "step", "--warmup-epochs",
             "1", "--checkpoint", path("run"), "--checkpoint-every", "1", "--checkpoint-keep", "1"});
    EXPECT_EQ(outcome.exit_code, 1) << rate;
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    const auto steps = nn::checkpoint_steps(path("run"));
    EXPECT_LE(steps.size(), 1U) << rate;
    if (steps.empty()) continue;  // the first update was too much
    const Outcome predicted = predict();
    EXPECT_EQ(predicted.exit_code, 0) << "rate " << rate << ", step " << steps[0] << ": " << predicted.error;
  }
}

}  // namespace
}  // namespace lockstep::apps
