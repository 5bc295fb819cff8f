// Runs that are stopped in every way and go on: they must end with the bits of the run that was not stopped.
// And every way in which going on must be refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <set>

#include "nn/io/checkpoint.h"
#include "tests/apps/program.h"
#include "tests/apps/small_fashion_mnist.h"
#include "tests/full_disk.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

// Options by name; a flag has an empty value. What stands in the first of two wins.
using Given = std::map<std::string, std::string>;
Given operator+(Given a, const Given& b) {
  a.insert(b.begin(), b.end());
  return a;
}

class Checkpoints : public testing::Test {
 protected:
  // Three epochs of five steps on two devices, with momentum.
  Given plain() const {
    return {{"--data-dir", images_.path()},
            {"--epochs", "3"},
            {"--batch-size", "16"},
            {"--devices", "2"},
            {"--json", json()}};
  }
  Given saving() const {
    return plain() + Given{{"--checkpoint", folder().string()}, {"--checkpoint-every", "2"}};
  }
  Given going_on() const { return saving() + Given{{"--resume", ""}}; }

  static std::vector<std::string> command(const Given& options) {
    std::vector<std::string> words{TRAIN_LENET};
    for (const auto& [name, value] : options) {
      words.push_back(name);
      if (!value.empty()) words.push_back(value);
    }
    return words;
  }
  static Outcome run(const Given& options) { return run_program(command(options), kEnvironment); }

  fs::path folder() const { return here_.path() / "run"; }
  std::string json() const { return (here_.path() / "run.json").string(); }
  std::vector<int64_t> steps() const { return nn::checkpoint_steps(folder()); }
  void keep_until(int64_t step) const {
    for (const int64_t later : steps()) {
      if (later <= step) continue;
      fs::remove(nn::state_path(folder(), later));
      fs::remove(nn::weights_path(folder(), later));
    }
  }

  // The report's lines without what differs from run to run: times, and memory.
  std::vector<nlohmann::json> report() const {
    std::ifstream in(json());
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) {
      lines.push_back(nlohmann::json::parse(line));
      for (const char* key : {"seconds", "images_per_second", "allreduce_share", "peak_memory_bytes"})
        lines.back().erase(key);
    }
    if (!lines.empty()) lines.erase(lines.begin());  // what run it is: with --resume, or without
    return lines;
  }
  // The report of a run that nothing stops and nothing saves.
  std::vector<nlohmann::json> undisturbed(const Given& more = {}) const {
    const Outcome outcome = run(more + plain());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return report();
  }

  void expect_refused(const Given& options, const std::string& message) const {
    const auto steps_before = steps();
    const auto report_before = report();
    const Outcome outcome = run(options);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    EXPECT_NE(outcome.error.find(message), std::string::npos) << outcome.error;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(steps(), steps_before);
    EXPECT_EQ(report(), report_before);
  }

  static const std::vector<std::string> kEnvironment;
  const SmallFashionMnist images_{80, 20};
  const data::TemporaryFolder here_;
};

const std::vector<std::string> Checkpoints::kEnvironment{"HOSTCUDA_THREADS=1"};

TEST_F(Checkpoints, ChangeNothingInTheRun) {
  const auto expected = undisturbed();
  ASSERT_EQ(expected.size(), 4U);
  EXPECT_EQ(run(saving()).exit_code, 0);
  EXPECT_EQ(report(), expected);
  EXPECT_EQ(steps(), (std::vector<int64_t>{12, 14, 15})) << "every two steps and at the end; three are kept";
}

TEST_F(Checkpoints, AreMadeAfterEachEpochUnlessToldOtherwise) {
  EXPECT_EQ(run(plain() + Given{{"--checkpoint", folder().string()}, {"--checkpoint-keep", "9"}}).exit_code,
            0);
  EXPECT_EQ(steps(), (std::vector<int64_t>{5, 10, 15}));
}

TEST_F(Checkpoints, LeadToTheSameEndFromEveryStep) {
  const Given every{{"--checkpoint-every", "1"}, {"--checkpoint-keep", "99"}};
  const auto expected = undisturbed();
  EXPECT_EQ(run(every + saving()).exit_code, 0);
  ASSERT_EQ(steps().size(), 15U);
  for (int64_t step = 15; step > 0; step -= 3) {
    SCOPED_TRACE(testing::Message() << "after step " << step);
    keep_until(step);
    const Outcome outcome = run(every + going_on());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_NE(outcome.out.find(fmt::format("step-{:09}.state", step)), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("nothing left to do") != std::string::npos, step == 15) << outcome.out;
    EXPECT_EQ(report(), expected);
    EXPECT_EQ(steps().size(), 15U);
  }
}

TEST_F(Checkpoints, LeadToTheSameEndAfterAnyNumberOfKills) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 generator(seed);
  const Given often{{"--checkpoint-every", "1"}, {"--checkpoint-keep", "1"}};
  const Given adam{{"--optimizer", "adamw"}, {"--augment", "crop+flip"}};
  for (const auto& [training, checkpoints] :
       {std::pair{Given{}, Given{}}, {Given{}, often}, {adam, Given{}}}) {
    const Given more = training + checkpoints;
    const auto expected = undisturbed(training);
    fs::remove_all(folder());
    const auto options = [&] { return more + (steps().empty() ? saving() : going_on()); };
    for (int i = 0; i < 6; ++i) {
      const int exit_code = run_and_kill(command(options()), kEnvironment, generator() % 400'000);
      // A first checkpoint that was never whole is nothing to go on from, which ends the next run with 1.
      const bool started = exit_code != 1;
      EXPECT_TRUE(exit_code == 128 + SIGKILL || exit_code == 0 || (!started && steps().size() == 1))
          << exit_code;
      if (!started) fs::remove_all(folder());
    }
    const Outcome outcome = run(options());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(report(), expected);
    for (const auto& file : fs::directory_iterator(folder()))
      EXPECT_NE(file.path().extension(), ".partial") << file.path();
  }
}

TEST_F(Checkpoints, AreMadeWhenTheRunIsAskedToStop) {
  for (const int signal : {SIGINT, SIGTERM}) {
    fs::remove_all(folder());
    const Given endless =
        Given{{"--epochs", "100000"}, {"--schedule", "constant"}, {"--checkpoint-every", "1000000"}} +
        saving();
    const Outcome outcome = run_program(command(endless), kEnvironment, "images/s", signal);
    EXPECT_EQ(outcome.exit_code, 130);
    ASSERT_EQ(steps().size(), 1U) << outcome.error;
    const int64_t step = steps()[0];
    // In the words of the program, epoch e ends after step 5 e; a stop may come after it and before its
    // evaluation.
    EXPECT_TRUE(std::regex_match(
        outcome.error,
        std::regex(
            fmt::format("stopping after this step; a checkpoint will be written; Ctrl-C again ends at once\n"
                        "interrupted after step {} \\(epoch \\d+\\); it is saved in {}: the same "
                        "command with --resume goes on from here\n",
                        step, folder().string()))))
        << outcome.error;
    const Given ends{{"--epochs", std::to_string(step / 5 + 2)}, {"--schedule", "constant"}};
    EXPECT_EQ(run(ends + going_on()).exit_code, 0);
    const auto resumed = report();
    EXPECT_EQ(resumed, undisturbed(ends));
  }
}

TEST_F(Checkpoints, ThatAreDamagedArePassedOver) {
  const auto expected = undisturbed();
  EXPECT_EQ(run(saving()).exit_code, 0);
  fs::resize_file(nn::weights_path(folder(), 15), 1000);
  fs::resize_file(nn::state_path(folder(), 14), 1000);
  const Outcome outcome = run(going_on());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(count_lines(outcome.error), 2) << outcome.error;
  for (const fs::path& file : {nn::weights_path(folder(), 15), nn::state_path(folder(), 14)})
    EXPECT_NE(outcome.error.find(file.string() + ": "), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.out.find("step-000000012.state"), std::string::npos) << outcome.out;
  EXPECT_EQ(report(), expected);

  for (const int64_t step : steps()) fs::resize_file(nn::state_path(folder(), step), 1000);
  expect_refused(going_on(), "to start at the beginning, empty the folder and leave --resume out");
}

TEST_F(Checkpoints, GoOnWithAnotherNumberOfDevicesAndSaySo) {
  const auto expected = undisturbed();
  EXPECT_EQ(run(saving()).exit_code, 0);
  keep_until(12);
  const Outcome outcome = run(Given{{"--devices", "3"}} + going_on());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("note: --devices is 2 there and 3 here: from here on the weights differ"),
            std::string::npos)
      << outcome.out;
  const auto lines = report();
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[1], expected[1]);
  // Three steps by another order of sums: some roundings of a loss of about 2.
  EXPECT_NEAR(lines[2].at("train_loss"), expected[2].at("train_loss").get<double>(), 1e-4);
  EXPECT_NE(lines[3].at("weights_sha256"), expected[3].at("weights_sha256"));
}

TEST_F(Checkpoints, StayAsTheyAreWhereTheDiskIsFull) {
  EXPECT_EQ(run(saving()).exit_code, 0);
  keep_until(14);
  const auto before = steps();
  const fs::path fails = nn::state_path(folder(), 15);
  {
    // Programs inherit it: there is room for the weights, not for the state.
    const FileSizeLimit limit(fs::file_size(nn::weights_path(folder(), 14)) + 100);
    const Outcome outcome = run(going_on());
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.error, fmt::format("train_lenet: {}: cannot write: File too large\n", fails.string()));
  }
  EXPECT_EQ(steps(), before);
  EXPECT_EQ(run(going_on()).exit_code, 0);
  EXPECT_EQ(steps().back(), 15);
}

TEST_F(Checkpoints, AreOfOneRun) {
  EXPECT_EQ(run(saving()).exit_code, 0);
  expect_refused(saving(), "there are checkpoints in it already, the newest after step 15: add --resume");
  const std::vector<std::pair<Given, std::string>> others{
      {{{"--lr", "0.2"}}, "--lr is 0.15 there and 0.2 here"},
      {{{"--batch-size", "8"}}, "--batch-size is 16 there and 8 here"},
      {{{"--accumulate", "2"}}, "--accumulate is not set there and 2 here"},
      {{{"--epochs", "4"}}, "--epochs is 3 there and 4 here"},
      {{{"--schedule", "step"}}, "--schedule is cosine there and step here"},
      {{{"--warmup-epochs", "2"}}, "--warmup-epochs is 0.6 there and 2 here"},
      {{{"--optimizer", "adam"}}, "--optimizer is sgd there and adam here"},
      {{{"--momentum", "0"}}, "--momentum is 0.9 there and 0 here"},
      {{{"--weight-decay", "0"}}, "--weight-decay is 0.0005 there and 0 here"},
      {{{"--seed", "1"}, {"--augment", "flip"}},
       "--augment is none there and flip here, --seed is 0 there and 1 here"},
      {{{"--limit", "64"}}, "--limit is all there and 64 here"},
      {{{"--model", "chapter"}}, "variant is article there and chapter here"},
  };
  for (const auto& [given, message] : others) expect_refused(given + going_on(), message);

  const SmallFashionMnist more(80, 30);
  expect_refused(Given{{"--data-dir", more.path()}} + going_on(), "the data set is 80 and 20 images");

  nn::Checkpoint other = nn::newest_checkpoint(folder()).checkpoint;
  other.model = {{"model", "resnet18"}};
  const fs::path elsewhere = here_.path() / "other";
  nn::CheckpointWriter(elsewhere, 1).save(other);
  expect_refused(Given{{"--checkpoint", elsewhere.string()}} + going_on(),
                 "model is resnet18 there and lenet here");
}

// Whoever adds an option decides here whether a resumed run must have the same.
TEST_F(Checkpoints, KnowEveryOptionThatMakesTheRun) {
  EXPECT_EQ(run(Given{{"--schedule", "step"},
                      {"--augment", "crop+cutout"},
                      {"--epochs", "1"},
                      {"--accumulate", "2"}} +
                saving())
                .exit_code,
            0);
  std::set<std::string> known;
  const auto options = nlohmann::json::parse(nn::newest_checkpoint(folder()).checkpoint.run.at("options"));
  for (const auto& [name, value] : options.items()) known.insert(name);
  const std::set<std::string> free{
      "--help",           "--version",          "--devices",         "--allreduce", "--math",
      "--check-lockstep", "--check-allreduce",  "--data-dir",        "--json",      "--quiet",
      "--checkpoint",     "--checkpoint-every", "--checkpoint-keep", "--resume",    "--paths",
      "--forecast",       "--forecast-json",
      "--epochs",   // matters with --schedule cosine alone
      "--model",    // in the checkpoint's description of the model
      "--recipe"};  // sets others
  const std::string help = run_program({TRAIN_LENET, "--help"}).out;
  const std::regex line("\n  (?:-[a-z],)?(--[a-z-]+)");
  int found = 0;
  for (std::sregex_iterator match(help.begin(), help.end(), line), end; match != end; ++match, ++found)
    EXPECT_TRUE(known.contains((*match)[1]) || free.contains((*match)[1]))
        << (*match)[1] << " is neither in a checkpoint nor free to change";
  EXPECT_GT(found, 20);
}

TEST_F(Checkpoints, RefuseWhatCannotWorkBeforeTraining) {
  const fs::path file = here_.path() / "file";
  std::ofstream(file) << "x";
  for (const auto& [given, message] : std::vector<std::pair<Given, std::string>>{
           {plain() + Given{{"--checkpoint", (file / "run").string()}},
            (file / "run").string() + ": cannot be read: Not a directory"},
           {plain() + Given{{"--checkpoint", "/proc/self/fd"}}, "/proc/self/fd"},
           {plain() + Given{{"--resume", ""}}, "--resume: from where?"},
           {plain() + Given{{"--checkpoint-every", "2"}}, "--checkpoint-every: where to?"},
           {Given{{"--checkpoint-every", "-1"}} + saving(), "--checkpoint-every is -1: use 1 or more"},
           {Given{{"--checkpoint-keep", "0"}} + saving(), "--checkpoint-keep is 0: use 1 or more"},
           {going_on(), "--resume: there is no checkpoint in"},
       }) {
    expect_refused(given, message);
    EXPECT_FALSE(fs::exists(folder()));
    EXPECT_FALSE(fs::exists(json()));
  }
}

}  // namespace
}  // namespace lockstep::apps
