// train_resnet18, and the program of docs/your_own_model.md, as their users see them. ResNet-18 is slow on a
// CPU: few rows, and the stem that makes images small where the stem does not matter.
#include "tests/apps/training_run.h"

namespace lockstep::apps {
namespace {

class TrainResNet18 : public TrainingRun {
 protected:
  nlohmann::json epoch(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {"--stem", "imagenet", "--epochs", "1", "--limit", "16", "--batch-size", "16"});
    return report(TRAIN_RESNET18, arguments)[0];
  }
};

TEST_F(TrainResNet18, TrainsInLockstepOnThreeDevices) {
  const Outcome outcome = run(TRAIN_RESNET18,
                              {"--devices", "3", "--epochs", "1", "--limit", "20", "--batch-size", "10",
                               "--check-lockstep", "--json", path("run.json")},
                              {"HOSTCUDA_DEVICES=2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  for (const char* text :
       {"3 logical devices that share 2 physical ones", "resnet18 (stem small, variant chapter)",
        "11175818 parameters", "resnet_block4", "comparing all replicas", "2 steps, 20 images",
        "test accuracy", "weights sha256 "})
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << " is missing in\n" << outcome.out;
  EXPECT_EQ(outcome.out.find('\r'), std::string::npos) << "no bar is drawn where the output is no terminal";
}

TEST_F(TrainResNet18, StemAndVariantChangeTheModel) {
  const Outcome outcome = run(TRAIN_RESNET18, {"--stem", "imagenet", "--variant", "torchvision", "--epochs",
                                               "1", "--limit", "16", "--batch-size", "16"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  // torchvision's 11,689,512, without two input channels (6,272) and 990 classes (507,870).
  EXPECT_NE(outcome.out.find("resnet18 (stem imagenet, variant torchvision): 11175370 parameters"),
            std::string::npos)
      << outcome.out;
}

TEST_F(TrainResNet18, SynchronisedBatchNormOnTwoDevicesIsThatOfOne) {
  const double one = epoch({})["train_loss"];
  // One step each, so the losses are those of the same weights: apart by rounding only, which a dozen batch
  // norms over a few dozen values amplify.
  EXPECT_NEAR(epoch({"--devices", "2", "--sync-batch-norm"})["train_loss"], one, 1e-3 * one);
  EXPECT_GT(std::abs(epoch({"--devices", "2"})["train_loss"].get<double>() - one), 1e-2 * one)
      << "each device has statistics of its own";
}

TEST_F(TrainResNet18, RefusesAnotherStemOrVariant) {
  expect_refusal(TRAIN_RESNET18, {"--stem", "smal"}, "did you mean 'small'");
  expect_refusal(TRAIN_RESNET18, {"--variant", "touchvision"}, "did you mean 'torchvision'");
  expect_refusal(TRAIN_RESNET18, {"--batch-size", "-1"}, "--batch-size is -1");
}

// With the imagenet stem an image is one pixel in the end: one image has no variance.
class ABatchThatLeavesOneImage : public TrainResNet18 {
 protected:
  Outcome of(const std::string& limit, const std::string& batch_size, const std::string& devices,
             std::vector<std::string> more = {"--stem", "imagenet"}) const {
    more.insert(more.end(), {"--limit", limit, "--batch-size", batch_size, "--devices", devices, "--epochs",
                             "1", "--checkpoint", path("run"), "--json", path("run.json")});
    const Outcome outcome = run(TRAIN_RESNET18, more);
    if (outcome.exit_code != 0) {
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_EQ(outcome.out, "") << "refused before the first step";
      EXPECT_FALSE(std::filesystem::exists(path("run")));
      EXPECT_FALSE(std::filesystem::exists(path("run.json")));
    }
    std::filesystem::remove_all(path("run"));
    std::filesystem::remove(path("run.json"));
    return outcome;
  }
  static std::string refusal(const std::string& what, const std::string& ways) {
    return "train_resnet18: " + what +
           " a single one: batch_norm: one value per channel has no variance: train with more rows or larger "
           "images: use " +
           ways + "\n";
  }
};

TEST_F(ABatchThatLeavesOneImage, IsRefusedBeforeTheFirstStepWithAWayOut) {
  EXPECT_EQ(of("17", "16", "1").error,
            refusal("the last batch of an epoch has 1 of 17 images, which leaves it", "--batch-size 17"));
  EXPECT_EQ(of("18", "16", "2").error,
            refusal("the last batch of an epoch has 2 of 18 images, which leaves a device",
                    "--batch-size 18, or --sync-batch-norm"));
  EXPECT_EQ(of("21", "16", "3").error,
            refusal("the last batch of an epoch has 5 of 21 images, which leaves a device",
                    "--batch-size 15, or --sync-batch-norm"));
  EXPECT_EQ(of("8", "2", "2").error, refusal("a batch has 2 of 8 images, which leaves a device",
                                             "--batch-size 4, or --sync-batch-norm"));
  EXPECT_EQ(of("5", "4", "2", {"--stem", "imagenet", "--sync-batch-norm"}).error,
            refusal("the last batch of an epoch has 1 of 5 images, which leaves it", "--batch-size 5"));
  EXPECT_EQ(of("1", "1", "1").error, refusal("a batch has 1 of 1 images, which leaves it", "more images"));
}

TEST_F(ABatchThatLeavesOneImage, IsNoneWhereTheWayOutIsTakenOrImagesStayLarge) {
  EXPECT_EQ(of("17", "17", "1").error, "");
  EXPECT_EQ(of("21", "15", "3").error, "");
  EXPECT_EQ(of("18", "16", "2", {"--stem", "imagenet", "--sync-batch-norm"}).error, "");
  EXPECT_EQ(of("5", "4", "1", {"--stem", "small"}).error, "");
}

class YourOwnModel : public TrainingRun {};

TEST_F(YourOwnModel, LearnsWithTheProgramOfThePage) {
  const Outcome outcome = run(PAGE_PROGRAM, {"--devices", "2", "--epochs", "20", "--batch-size", "16",
                                             "--check-lockstep", "--json", path("run.json")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("page: "), std::string::npos) << outcome.out;
  std::ifstream in(path("run.json"));
  nlohmann::json last;
  for (std::string line; std::getline(in, line);) last = nlohmann::json::parse(line);
  // The classes do not overlap; a network that learns gets them all but for a few.
  EXPECT_GE(last.at("test_accuracy"), 0.9);
}

TEST_F(YourOwnModel, HasTheDefaultsOfThePage) {
  const std::string help = run_program({PAGE_PROGRAM, "--help"}).out;
  for (const char* text :
       {"Trains my network", "--lr FLOAT=0.1 ", "--epochs INT=5 ", "--recipe TEXT=default "})
    EXPECT_NE(help.find(text), std::string::npos) << help;
}

}  // namespace
}  // namespace lockstep::apps
