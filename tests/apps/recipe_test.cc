// The default recipe on the real data set, where it is installed: that it learns from any number of images
// and any seed, in however few epochs, and that every quick command that is shown somewhere learns something.
#include <nlohmann/json.hpp>

#include "nn/data/fashion_mnist.h"
#include "tests/apps/training_run.h"

namespace lockstep::apps {
namespace {

class Recipe : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "minutes under a sanitizer, for what it has seen in shorter runs";
#endif
    try {
      folder_ = data::find_fashion_mnist("").string();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // Of a run on one thread a device: its figures depend on nothing else.
  double test_accuracy(const std::string& program, const std::string& arguments) const {
    std::vector<std::string> command{program, "--data-dir", folder_, "--quiet", "--json", "/dev/stdout"};
    std::istringstream words(arguments);
    for (std::string word; words >> word;) command.push_back(word);
    const Outcome outcome = run_program(command, {"HOSTCUDA_THREADS=1"});
    EXPECT_EQ(outcome.exit_code, 0) << arguments << ": " << outcome.error;
    if (outcome.exit_code != 0) return 0;
    nlohmann::json last;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) last = nlohmann::json::parse(line);
    return last.at("test_accuracy");
  }

  std::string folder_;
};

// Chance is 0.1. The bounds lie 0.05 or more below what was seen, for other machines' roundings.
TEST_F(Recipe, LearnsFromFewImagesWithEverySeed) {
  for (const char* seed : {"0", "1", "2", "3", "4"}) {
    EXPECT_GE(test_accuracy(TRAIN_LENET, std::string("--devices 2 --limit 600 --seed ") + seed), 0.6) << seed;
    EXPECT_GE(test_accuracy(TRAIN_LENET, std::string("--limit 6000 --epochs 3 --seed ") + seed), 0.7) << seed;
  }
}

TEST_F(Recipe, EndsWellAfterOneEpoch) {
  EXPECT_GE(test_accuracy(TRAIN_LENET, "--devices 2 --limit 2000 --epochs 1"), 0.4);
  EXPECT_GE(test_accuracy(TRAIN_LENET, "--devices 2 --limit 6000 --epochs 1"), 0.6);
  EXPECT_GE(test_accuracy(TRAIN_LENET, "--devices 2 --limit 20000 --epochs 1"), 0.7);
}

TEST_F(Recipe, TrainsWhereTheRateIsHighAfterFewSteps) {
  EXPECT_GE(test_accuracy(TRAIN_LENET, "--devices 2 --limit 10000 --epochs 2"), 0.7);
  EXPECT_GE(test_accuracy(TRAIN_LENET, "--devices 2 --limit 20000 --epochs 2"), 0.75);
}

TEST_F(Recipe, LearnsFasterFromLargeBatchesWithALargerRate) {
  const double as_it_is = test_accuracy(TRAIN_LENET, "--devices 2 --epochs 1 --batch-size 512");
  const double scaled =
      test_accuracy(TRAIN_LENET, "--devices 2 --epochs 1 --batch-size 512 --lr-scale linear");
  EXPECT_GE(as_it_is, 0.7);
  EXPECT_GT(scaled, as_it_is);
  EXPECT_GE(test_accuracy(TRAIN_LENET, "--devices 2 --epochs 2 --batch-size 2048 --lr-scale linear"), 0.7);
}

// Of --help and the README.
TEST_F(Recipe, ShownQuickLooksLearn) {
  EXPECT_GE(test_accuracy(TRAIN_LENET, "--epochs 1 --limit 6000"), 0.6);
  EXPECT_GE(test_accuracy(TRAIN_LENET, "--math own --limit 600 --epochs 1 --batch-size 32"), 0.3);
}

}  // namespace
}  // namespace lockstep::apps
