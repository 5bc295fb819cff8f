// The options that all training programs share: that each does something, what the defaults are, and every
// value that cannot be. They are tried on train_lenet, whose steps cost next to nothing.
#include "apps/common/options.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "apps/common/command_line.h"
#include "tests/apps/training_run.h"

namespace lockstep::apps {
namespace {

class TrainingOptions : public TrainingRun {
 protected:
  std::string sha256(std::vector<std::string> arguments, const char* epochs = "2") const {
    arguments.insert(arguments.begin(), {"--epochs", epochs, "--batch-size", "32"});
    return report(TRAIN_LENET, arguments).back().value("weights_sha256", "");
  }
};

TEST_F(TrainingOptions, EachChangesTheWeights) {
  std::map<std::string, std::string> seen;  // weights to the options that gave them
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"--optimizer", "adam"},
           {"--optimizer", "adam", "--momentum", "0.5"},
           {"--optimizer", "adamw"},
           {"--decay-on", "weights"},
           {"--lr-scale", "linear"},
           {"--schedule", "constant"},
           {"--schedule", "step", "--step-every", "1"},
           {"--schedule", "step", "--step-every", "1", "--step-gamma", "0.5"},
           {"--warmup-epochs", "1"},
           {"--label-smoothing", "0.1"},
           {"--accumulate", "2"},
           {"--clip-norm", "0.1"},
           {"--clip-norm", "0"},
           {"--augment", "crop"},
           {"--augment", "crop", "--crop-padding", "5"},
           {"--augment", "flip"},
           {"--augment", "cutout"},
           {"--augment", "cutout", "--cutout-size", "3"},
           {"--augment", "crop+flip"}}) {
    std::string options;
    for (const std::string& word : arguments) options += word + " ";
    const auto [entry, fresh] = seen.emplace(sha256(arguments), options);
    EXPECT_TRUE(fresh) << "'" << options << "' gives the weights of '" << entry->second << "'";
  }
}

TEST_F(TrainingOptions, DefaultsDependOnTheOptimizerAndTheSchedule) {
  EXPECT_EQ(sha256({"--optimizer", "adam"}),
            sha256({"--optimizer", "adam", "--lr", "0.001", "--weight-decay", "0"}));
  EXPECT_EQ(sha256({"--optimizer", "adamw"}),
            sha256({"--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.01"}));
  EXPECT_EQ(sha256({"--schedule", "constant"}), sha256({"--schedule", "constant", "--warmup-epochs", "0"}));
  EXPECT_NE(sha256({"--schedule", "constant"}), sha256({"--schedule", "constant", "--warmup-epochs", "1"}));
}

TEST_F(TrainingOptions, LinearScalingIsTheRateTimesTheBatchOverItsBase) {
  // 32 over train_lenet's 256, which its help names.
  EXPECT_EQ(sha256({"--lr-scale", "linear", "--lr", "0.5"}), sha256({"--lr", "0.0625"}));
  EXPECT_NE(run_program({TRAIN_LENET, "--help"}).out.find("images of a step / 256"), std::string::npos);
  // It comes with a warm-up.
  EXPECT_EQ(sha256({"--lr-scale", "linear", "--schedule", "constant", "--lr", "0.5"}),
            sha256({"--schedule", "constant", "--warmup-epochs", "0.4", "--lr", "0.0625"}));
}

TEST_F(TrainingOptions, AStepThatFallsByNothingIsConstant) {
  EXPECT_EQ(sha256({"--schedule", "step", "--step-every", "1", "--step-gamma", "1"}),
            sha256({"--schedule", "constant", "--warmup-epochs", "0.4"}));
}

TEST_F(TrainingOptions, WarmUpTakesAFifthOfAShortRun) {
  EXPECT_EQ(sha256({}), sha256({"--warmup-epochs", "0.4"}));  // of two epochs
  EXPECT_EQ(sha256({}, "7"), sha256({"--warmup-epochs", "1"}, "7"));
  EXPECT_NE(sha256({}, "7"), sha256({"--warmup-epochs", "1.4"}, "7"));
}

TEST_F(TrainingOptions, AccumulatedBatchesAreStepsOfTheirSum) {
  // 150 images: with 96 a step one of 96 and one of 54, the same up to rounding. So one step, or the losses
  // of the same weights at its start and those after it.
  const auto lines = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all{"--epochs", "2", "--devices", "2"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return report(TRAIN_LENET, all);
  };
  const auto whole = lines({"--batch-size", "96", "--lr-scale", "linear"});
  for (const auto& [batch, accumulate] : {std::pair{"48", "2"}, {"32", "3"}, {"24", "4"}}) {
    const auto parts = lines({"--batch-size", batch, "--accumulate", accumulate, "--lr-scale", "linear"});
    EXPECT_EQ(parts.back().at("steps"), 4) << accumulate;
    EXPECT_EQ(parts.back().at("images"), 300) << accumulate;
    for (size_t epoch = 0; epoch < 2; ++epoch) {
      const double loss = whole[epoch].at("train_loss");
      EXPECT_NEAR(parts[epoch].at("train_loss"), loss, 1e-5 * loss) << accumulate;
      EXPECT_EQ(parts[epoch].at("learning_rate"), whole[epoch].at("learning_rate")) << accumulate;
    }
  }
  EXPECT_EQ(sha256({"--accumulate", "1"}), sha256({}));
  const Outcome refused = run(TRAIN_LENET, {"--batch-size", "96", "--accumulate", "3"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_EQ(refused.error,
            "train_lenet: --accumulate is 3, but there are 2 batches of 96 images: use at most that\n");
}

TEST_F(TrainingOptions, TheRateIsReportedAndLowAtTheEndOfEveryRun) {
  const auto rates = [&](const std::vector<std::string>& arguments) {
    std::vector<double> result;
    for (const nlohmann::json& line : report(TRAIN_LENET, arguments))
      if (line.contains("learning_rate")) result.push_back(line.at("learning_rate"));
    return result;
  };
  for (const char* batch : {"50", "16", "1"})  // three steps per epoch, ten, 150
    for (const size_t epochs : {1, 2, 3, 7}) {
      const std::vector<double> all = rates({"--epochs", std::to_string(epochs), "--batch-size", batch});
      ASSERT_EQ(all.size(), epochs);
      EXPECT_GT(all.back(), 0);
      EXPECT_LE(all.back(), 0.2501 * 0.15) << epochs << " epochs, batches of " << batch;
    }
  EXPECT_EQ(rates({"--schedule", "constant", "--epochs", "2", "--batch-size", "50"}),
            (std::vector<double>{0.15, 0.15}));
  // 50 / 256 of the rate, which falls to a tenth after the first epoch.
  const std::vector<double> steps = rates({"--schedule", "step", "--step-every", "1", "--epochs", "3",
                                           "--lr-scale", "linear", "--lr", "2.56", "--batch-size", "50"});
  ASSERT_EQ(steps.size(), 3U);
  for (size_t epoch = 0; epoch < 3; ++epoch)
    EXPECT_DOUBLE_EQ(steps[epoch], 0.5 * std::pow(0.1, epoch)) << "epoch " << epoch;
}

TEST_F(TrainingOptions, AugmentationIsTheSameOnAnyNumberOfPhysicalDevices) {
  const std::vector<std::string> arguments{"--devices",    "3",  "--augment", "crop+flip+cutout",
                                           "--batch-size", "32", "--json",    path("run.json"),
                                           "--epochs",     "1"};
  const auto last_line = [&](const char* physical) {
    const std::string out = run(TRAIN_LENET, arguments, {physical}).out;
    return out.substr(out.rfind("weights sha256"));
  };
  EXPECT_EQ(last_line("HOSTCUDA_DEVICES=1"), last_line("HOSTCUDA_DEVICES=3"));
}

TEST_F(TrainingOptions, HelpFitsATerminalAndShowsEachOptionOnce) {
  for (const std::string program : {TRAIN_LENET, TRAIN_RESNET18, PAGE_PROGRAM}) {
    const Outcome outcome = run_program({program, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
    for (const char* option :
         {"--optimizer", "--momentum", "--weight-decay", "--decay-on", "--lr ", "--lr-scale", "--schedule",
          "--warmup-epochs", "--step-every", "--step-gamma", "--label-smoothing", "--clip-norm", "--augment",
          "--crop-padding", "--cutout-size", "--sync-batch-norm", "--devices"}) {
      const std::string line_begin = std::string("\n  ") + option;
      const size_t first = outcome.out.find(line_begin);
      ASSERT_NE(first, std::string::npos) << option;
      EXPECT_EQ(outcome.out.find(line_begin + " ", first + 1), std::string::npos) << option;
    }
  }
}

TEST_F(TrainingOptions, ValuesThatCannotBeAreRefusedBeforeAnythingIsRead) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad{
      {{"--optimizer", "adma"}, "did you mean 'adam'"},
      {{"--decay-on", "weihgts"}, "did you mean 'weights'"},
      {{"--lr-scale", "liner"}, "did you mean 'linear'"},
      {{"--schedule", "stpe"}, "did you mean 'step'"},
      {{"--accumulate", "0"}, "--accumulate is 0"},
      {{"--accumulate", "-3"}, "--accumulate is -3"},
      {{"--accumulate", "1.5"}, "--accumulate"},
      {{"--warmup-epochs", "-1"}, "--warmup-epochs is -1"},
      {{"--warmup-epochs", "inf"}, "--warmup-epochs is inf"},
      {{"--warmup-epochs", "2", "--epochs", "2"},
       "--warmup-epochs is 2 of 2 epochs: the rate would never fall"},
      {{"--step-every", "0"}, "--step-every is 0"},
      {{"--step-gamma", "0"}, "--step-gamma is 0"},
      {{"--step-gamma", "nan"}, "--step-gamma is nan"},
      {{"--label-smoothing", "1"}, "--label-smoothing is 1"},
      {{"--label-smoothing", "-0.1"}, "--label-smoothing is -0.1"},
      {{"--clip-norm", "-2"}, "--clip-norm is -2"},
      {{"--clip-norm", "nan"}, "--clip-norm is nan"},
      {{"--augment", "crop+flop"}, "did you mean 'flip'"},
      {{"--augment", "crop,flip"}, "--augment: unknown name 'crop,flip'"},
      {{"--augment", ""}, "--augment: unknown name ''"},
      {{"--augment", "crop+"}, "--augment: unknown name ''"},
      {{"--augment", "none+crop"}, "--augment: unknown name 'none'"},
      {{"--crop-padding", "28"}, "--crop-padding is 28"},
      {{"--crop-padding", "0"}, "--crop-padding is 0"},
      {{"--cutout-size", "29"}, "--cutout-size is 29"},
      {{"--momentum", "1", "--optimizer", "adam"}, "--momentum is 1"},
  };
  for (const auto& [arguments, message] : bad) expect_refusal(TRAIN_LENET, arguments, message);
}

// Found by the parser or after it: one status, and what is allowed.
TEST_F(TrainingOptions, ThatAreWrittenWronglyAreRefusedLikeValuesThatAreWrong) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad{
      {{"--devices", "two"}, "train_lenet: --devices is 'two': use a whole number. See --help\n"},
      {{"--epochs", "1.5"}, "train_lenet: --epochs is '1.5': use a whole number. See --help\n"},
      {{"--lr", "fast"}, "train_lenet: --lr is 'fast': use a number. See --help\n"},
      {{"--devicse", "2"},
       "train_lenet: unknown argument '--devicse', did you mean '--devices'? See --help\n"},
      {{"--epochs", "0"}, "train_lenet: --epochs is 0: use 1 or more\n"},
  };
  for (const auto& [arguments, line] : bad) {
    const Outcome outcome = run(TRAIN_LENET, arguments);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.error, line);
  }
}

TEST_F(TrainingOptions, VersionIsThatOfEveryProgram) {
  for (const std::string program : {TRAIN_LENET, TRAIN_RESNET18, PREDICT, EXPORT, IMPORT}) {
    const Outcome outcome = run_program({program, "--version"});
    EXPECT_EQ(outcome.exit_code, 0);
    const std::string name = std::filesystem::path(program).filename().string();
    EXPECT_EQ(outcome.out, name + " " + version() + "\n");
  }
}

TEST_F(TrainingOptions, SynchronisedBatchNormNeedsABatchNorm) {
  const Outcome outcome = run(TRAIN_LENET, {"--sync-batch-norm", "--batch-size", "32"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.error, "train_lenet: --sync-batch-norm: this model has no batch norm\n");
}

TEST(RunOptions, ListWhatMakesARunAndNothingElse) {
  const Options options;
  const auto changed = [&](const auto& change) {
    Options other = options;
    change(other);
    return run_options(other) != run_options(options);
  };
  EXPECT_TRUE(changed([](Options& o) { o.lr = 0.1500001; }));
  EXPECT_TRUE(changed([](Options& o) { o.seed = 1; }));
  EXPECT_TRUE(changed([](Options& o) { o.augment = "crop"; }));
  EXPECT_TRUE(changed([](Options& o) { o.limit = 600; }));
  EXPECT_TRUE(changed([](Options& o) { o.sync_batch_norm = true; }));
  EXPECT_TRUE(changed([](Options& o) { o.precision = "bf16"; }));
  EXPECT_TRUE(changed([](Options& o) { o.reduce_in = "bf16"; }));
  EXPECT_TRUE(changed([](Options& o) { o.epochs = 11; })) << "the cosine would be another one";
  EXPECT_FALSE(changed([](Options& o) { o.devices = 3; }));
  EXPECT_FALSE(changed([](Options& o) { o.allreduce = "tree"; }));
  EXPECT_FALSE(changed([](Options& o) { o.quiet = true; }));
  EXPECT_FALSE(changed([](Options& o) { o.step_gamma = 0.5; })) << "it is not used";

  Options constant = options, longer = options;
  constant.schedule = longer.schedule = "constant";
  longer.epochs = 50;
  EXPECT_EQ(run_options(constant), run_options(longer)) << "it may simply go on";
}

}  // namespace
}  // namespace lockstep::apps
