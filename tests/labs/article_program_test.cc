// The articles' programs as their users see them: what they print, on one device and on several, and bad
// arguments.
#include <gtest/gtest.h>

#include <regex>

#include "tests/apps/program.h"
#include "tests/apps/small_fashion_mnist.h"

namespace lockstep::labs {
namespace {

struct Epoch {
  int number;
  double loss, test_accuracy, seconds;
};

// The epochs that a program printed: "epoch 1: loss 2.301234, test accuracy 0.1250, 0.3 s".
std::vector<Epoch> epochs(const std::string& out) {
  static const std::regex line("epoch (\\d+): loss ([0-9.]+), test accuracy ([0-9.]+), ([0-9.]+) s\n");
  std::vector<Epoch> found;
  for (std::sregex_iterator match(out.begin(), out.end(), line); match != std::sregex_iterator(); ++match)
    found.push_back(
        {std::stoi((*match)[1]), std::stod((*match)[2]), std::stod((*match)[3]), std::stod((*match)[4])});
  return found;
}

class ArticlePrograms : public testing::Test {
 protected:
  apps::Outcome run(const char* program, std::vector<std::string> arguments) const {
    std::vector<std::string> command{program, "--data-dir", images_.path()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return apps::run_program(command, {"HOSTCUDA_THREADS=1", "HOSTCUDA_DEVICES=3"});
  }

  std::vector<Epoch> epochs_of(const char* program, const std::vector<std::string>& arguments) const {
    const apps::Outcome outcome = run(program, arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(outcome.error, "");
    return epochs(outcome.out);
  }

  void expect_refusal(const char* program, const std::vector<std::string>& arguments, int exit_code,
                      const std::string& says) const {
    const apps::Outcome outcome = run(program, arguments);
    EXPECT_EQ(outcome.exit_code, exit_code);
    EXPECT_NE(outcome.error.find(says), std::string::npos) << outcome.error;
    EXPECT_EQ(apps::count_lines(outcome.error), 1) << outcome.error;
  }

  const apps::SmallFashionMnist images_{100, 30};
};

TEST_F(ArticlePrograms, ScratchPrintsEveryEpochAndLearns) {
  const std::vector<Epoch> got =
      epochs_of(MULTI_GPU_SCRATCH, {"--epochs", "10", "--batch-size", "10", "--lr", "0.05"});
  ASSERT_EQ(got.size(), 10U);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].number, static_cast<int>(i) + 1);
  EXPECT_LT(got.back().loss, 0.5 * got.front().loss);
  EXPECT_GE(got.back().test_accuracy, 0.8);  // the classes do not overlap
}

// 33 rows are shards of 16 and 17, then of 11; the last batch of an epoch has one row: two shards are empty.
TEST_F(ArticlePrograms, ScratchGivesTheSameLossOnAnyNumberOfDevices) {
  const std::vector<std::string> arguments{"--epochs", "2", "--batch-size", "33", "--devices"};
  const auto on = [&](const char* devices) {
    std::vector<std::string> with = arguments;
    with.emplace_back(devices);
    return epochs_of(MULTI_GPU_SCRATCH, with);
  };
  const std::vector<Epoch> one = on("1");
  ASSERT_EQ(one.size(), 2U);
  for (const char* devices : {"2", "3"}) {
    const std::vector<Epoch> more = on(devices);
    ASSERT_EQ(more.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      // Eight steps apart by rounding, of losses around 2; six digits are printed.
      EXPECT_NEAR(more[i].loss, one[i].loss, 1e-5) << devices << " devices, epoch " << i + 1;
  }
}

TEST_F(ArticlePrograms, ConciseTrainsTheChaptersResNet) {
  const apps::Outcome outcome = run(MULTI_GPU_CONCISE, {"--limit", "8", "--batch-size", "8", "--lr", "0.005",
                                                        "--epochs", "3", "--devices", "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("11175818 parameters"), std::string::npos) << outcome.out;
  const std::vector<Epoch> got = epochs(outcome.out);
  ASSERT_EQ(got.size(), 3U) << outcome.out;
  EXPECT_LT(got[2].loss, got[0].loss) << outcome.out;
}

TEST_F(ArticlePrograms, RefuseBadArgumentsInOneLine) {
  for (const char* program : {MULTI_GPU_SCRATCH, MULTI_GPU_CONCISE}) {
    SCOPED_TRACE(program);
    expect_refusal(program, {"--devices", "0"}, 1, "--devices is 0: use 1 to ");
    expect_refusal(program, {"--epochs", "0"}, 1, "--epochs is 0: use 1 to 1000000");
    expect_refusal(program, {"--batch-size", "many"}, 1, "--batch-size is 'many': use a whole number");
    expect_refusal(program, {"--lr", "-1"}, 1, "--lr is -1: use more than 0");
    expect_refusal(program, {"--epoch", "1"}, 1, "unknown argument '--epoch', did you mean '--epochs'?");
    expect_refusal(program, {"--batch-size", "101"}, 1,
                   "--batch-size is 101, but there are 100 training images: use at most that");
    expect_refusal(program, {"--limit", "101"}, 1, "101");
  }
}

// After two steps, and after one: its loss is that of the weights before, so no loss shows what it did.
TEST_F(ArticlePrograms, SayThatTheModelSaysNothingAnyMore) {
  for (const char* batch : {"50", "100"})
    expect_refusal(MULTI_GPU_SCRATCH, {"--epochs", "1", "--batch-size", batch, "--lr", "1e20"}, 1,
                   "the model's outputs for test image 0 are NaN or infinite: use a smaller --lr");
}

}  // namespace
}  // namespace lockstep::labs
