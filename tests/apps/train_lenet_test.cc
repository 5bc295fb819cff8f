// train_lenet as its users see it: what it prints and writes, the promise, and every bad input.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "parallel/collective/plan.h"
#include "tests/apps/program.h"
#include "tests/apps/small_fashion_mnist.h"

namespace lockstep::apps {
namespace {

using data::Bytes;
using data::operator+;

constexpr uint32_t kTrainRows = 150, kTestRows = 40;

class TrainLenet : public testing::Test {
 protected:
  std::string folder() const { return images_.path(); }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  Outcome train(std::vector<std::string> arguments, std::vector<std::string> environment = {}) const {
    std::vector<std::string> command{TRAIN_LENET, "--data-dir", folder()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    environment.insert(environment.begin(), "HOSTCUDA_THREADS=1");
    return run_program(command, environment);
  }

  // An epoch each, and the totals.
  std::vector<nlohmann::json> json_lines(const std::string& file) const {
    std::ifstream in(path(file));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    if (!lines.empty()) lines.erase(lines.begin());  // what run it is
    return lines;
  }

  // The fingerprint of the weights after a quiet run.
  std::string sha256(std::vector<std::string> arguments,
                     const std::vector<std::string>& environment = {}) const {
    for (const char* word : {"--quiet", "--epochs", "2", "--batch-size", "32", "--json"})
      arguments.emplace_back(word);
    arguments.push_back(path("run.json"));
    const Outcome outcome = train(arguments, environment);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(outcome.out, "");
    const auto lines = json_lines("run.json");
    return lines.size() == 3 ? lines.back().at("weights_sha256").get<std::string>() : "";
  }

  const SmallFashionMnist images_{kTrainRows, kTestRows};
  const data::TemporaryFolder& folder_ = images_.folder();
};

TEST_F(TrainLenet, ReportsEpochsAndTotals) {
  const Outcome outcome = train(
      {"--devices", "2", "--epochs", "2", "--batch-size", "32", "--lr", "0.02", "--json", path("run.json")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  for (const char* text :
       {"2 logical devices", "44426 parameters", "Conv2d(1 -> 6, 5x5)", "train loss", "last rate",
        "rate: up to 0.02 in 2 steps, then down to 0 by step 10", "test accuracy", "weights sha256 "})
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << " is missing in\n" << outcome.out;
  EXPECT_EQ(outcome.out.find('\r'), std::string::npos) << "no bar is drawn where the output is no terminal";
  std::istringstream printed(outcome.out);
  for (std::string line; std::getline(printed, line);)
    EXPECT_TRUE(line.size() <= 80 || line.find(folder()) != std::string::npos) << line;

  const auto lines = json_lines("run.json");
  ASSERT_EQ(lines.size(), 3U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(lines[i].at("epoch"), i + 1);
    for (const char* key : {"train_loss", "train_accuracy", "test_accuracy", "learning_rate", "seconds",
                            "images_per_second", "allreduce_share"})
      EXPECT_TRUE(lines[i].at(key).is_number()) << key;
  }
  EXPECT_LT(lines[1].at("train_loss"), lines[0].at("train_loss"));
  EXPECT_EQ(lines[2].at("images"), 2 * kTrainRows)
      << "every row once an epoch, the short last batch included";
  EXPECT_EQ(lines[2].at("weights_sha256").get<std::string>().size(), 64U);
}

nlohmann::json first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return nlohmann::json::parse(line);
}

// This build's kernels do not tell what they access.
TEST_F(TrainLenet, SaysWhatAForecastNeeds) {
  const Outcome asked = train({"--epochs", "1", "--forecast", "h200"});
  EXPECT_EQ(asked.exit_code, 1);
  EXPECT_NE(asked.error.find("use ./lab PROGRAM --forecast GPU"), std::string::npos) << asked.error;
  const Outcome nameless = train({"--epochs", "1", "--forecast-json", path("forecast.json")});
  EXPECT_EQ(nameless.exit_code, 1);
  EXPECT_NE(nameless.error.find("--forecast-json needs --forecast"), std::string::npos) << nameless.error;
}

TEST_F(TrainLenet, JsonBeginsWithWhatTwoRunsAreComparedBy) {
  ASSERT_EQ(train({"--devices", "2", "--epochs", "1", "--batch-size", "32", "--optimizer", "adam",
                   "--augment", "crop", "--json", path("run.json")},
                  {"HOSTCUDA_DEVICES=1"})
                .exit_code,
            0);
  const nlohmann::json run = first_line(path("run.json"));
  EXPECT_TRUE(std::regex_match(run.at("version").get<std::string>(), std::regex("\\d+\\.\\d+\\.\\d+")));
  EXPECT_EQ(run.at("model"), (nlohmann::json{{"model", "lenet"}, {"variant", "article"}}));
  EXPECT_EQ(run.at("parameters"), 44426);
  EXPECT_TRUE(
      run.at("devices").get<std::string>().starts_with("2 logical devices that share 1 physical one"));
  EXPECT_EQ(run.at("data").at("folder"), folder());
  EXPECT_EQ(run.at("data").at("train_images"), kTrainRows);
  EXPECT_EQ(run.at("data").at("test_images"), kTestRows);
  EXPECT_EQ(run.at("options").at("--devices"), "2");
  EXPECT_EQ(run.at("options").at("--lr"), "0.001") << "what is used, not only what was typed";

  // Every option that --help names, but for those that are told in other words.
  const std::string help = run_program({TRAIN_LENET, "--help"}).out;
  const std::regex line("\n  (?:-[a-z],)?(--[a-z-]+)");
  const std::set<std::string> told{"--help",   "--version",  "--model",
                                   "--recipe", "--forecast", "--forecast-json"};
  int found = 0;
  for (std::sregex_iterator match(help.begin(), help.end(), line), end; match != end; ++match, ++found)
    EXPECT_TRUE(run.at("options").contains((*match)[1].str()) || told.contains((*match)[1])) << (*match)[1];
  EXPECT_GT(found, 20);

  // Other data of the same size have another sum.
  const auto sum = run.at("data").at("sha256").get<std::string>();
  EXPECT_EQ(sum.size(), 64U);
  folder_.write("train-labels-idx1-ubyte", idx_labels(Bytes(kTrainRows, 3)));
  ASSERT_EQ(train({"--epochs", "1", "--batch-size", "32", "--json", path("run.json")}).exit_code, 0);
  EXPECT_NE(first_line(path("run.json")).at("data").at("sha256"), sum);
}

TEST_F(TrainLenet, JsonOnStandardOutputIsAllThatIsPrinted) {
  const std::vector<std::string> arguments{"--epochs", "2", "--batch-size", "32", "--json"};
  std::vector<std::string> to_file = arguments;
  to_file.push_back(path("run.json"));
  ASSERT_EQ(train(to_file).exit_code, 0);
  std::vector<std::string> to_output = arguments;
  to_output.emplace_back("-");
  const Outcome outcome = train(to_output);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  EXPECT_FALSE(std::filesystem::exists("-"));
  std::istringstream printed(outcome.out);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(printed, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0].at("data"), first_line(path("run.json")).at("data"));
  EXPECT_EQ(lines[3].at("weights_sha256"), json_lines("run.json").back().at("weights_sha256"));
}

TEST_F(TrainLenet, PathsTellsWhichWayEachPassGoes) {
  const std::vector<std::string> arguments{"--paths", "--epochs",    "1",   "--batch-size",
                                           "32",      "--precision", "bf16"};
  const std::string out = train(arguments).out;
  EXPECT_NE(out.find("convolutions, 32 images per device:"), std::string::npos) << out;
  EXPECT_NE(out.find("conv1      forward         cuDNN"), std::string::npos) << out;
  EXPECT_EQ(out.find("conv1      input gradient"), std::string::npos) << out;
  EXPECT_NE(out.find("conv2      input gradient  cuDNN"), std::string::npos) << out;
  // A cuDNN that declines everything is no error: another way is taken, and said.
  const Outcome refused = train(arguments, {"HOSTCUDA_CUDNN_REFUSES=3007"});
  EXPECT_EQ(refused.exit_code, 0) << refused.error;
  EXPECT_NE(refused.out.find("conv2      input gradient  float32: direct"), std::string::npos) << refused.out;
  // Nor is one that declines only when it is to run: no step is lost.
  const Outcome later = train(arguments, {"HOSTCUDA_CUDNN_REFUSES=run:3007"});
  EXPECT_EQ(later.exit_code, 0) << later.error;
  EXPECT_NE(later.error.find("Conv2d(6 -> 16, 5x5): cudnnConvolutionBackwardData declined when it ran"),
            std::string::npos)
      << later.error;
  EXPECT_NE(later.error.find("going on with float32: direct"), std::string::npos) << later.error;
}

TEST_F(TrainLenet, LearnsASmallTask) {
  ASSERT_EQ(
      train({"--epochs", "8", "--batch-size", "16", "--lr", "0.05", "--quiet", "--json", path("run.json")})
          .exit_code,
      0);
  // The classes do not overlap; a network that learns gets them all but for a few.
  EXPECT_GE(json_lines("run.json").back().at("test_accuracy"), 0.9);
}

TEST_F(TrainLenet, GivesTheSameWeightsOnAnyNumberOfPhysicalDevices) {
  for (const std::string& algorithm : collective::algorithm_names()) {
    const std::vector<std::string> arguments{"--devices", "4", "--allreduce", algorithm};
    const std::string expected = sha256(arguments, {"HOSTCUDA_DEVICES=1"});
    for (const char* physical : {"HOSTCUDA_DEVICES=1", "HOSTCUDA_DEVICES=2", "HOSTCUDA_DEVICES=4"})
      EXPECT_EQ(sha256(arguments, {physical}), expected) << algorithm << " with " << physical;
  }
}

TEST_F(TrainLenet, GivesTheSameWeightsWherePeerCopiesFail) {
  const std::vector<std::string> arguments{"--devices", "3"};
  const std::string expected = sha256(arguments, {"HOSTCUDA_DEVICES=3"});
  EXPECT_EQ(sha256(arguments, {"HOSTCUDA_DEVICES=3", "HOSTCUDA_PEER=0"}), expected);
  EXPECT_EQ(sha256(arguments, {"HOSTCUDA_DEVICES=3", "HOSTCUDA_PEER=broken"}), expected);
  const Outcome told = train({"--devices", "2", "--epochs", "1", "--batch-size", "32"},
                             {"HOSTCUDA_DEVICES=2", "HOSTCUDA_PEER=broken"});
  EXPECT_NE(told.out.find("through host memory"), std::string::npos) << told.out;
}

TEST_F(TrainLenet, SeedAndModelAndMathChangeTheWeights) {
  const std::string expected = sha256({});
  EXPECT_EQ(sha256({"--seed", "0"}), expected);
  EXPECT_NE(sha256({"--seed", "1"}), expected);
  EXPECT_NE(sha256({"--model", "chapter"}), expected);
  EXPECT_NE(sha256({"--recipe", "article"}), expected);
  EXPECT_EQ(sha256({"--recipe", "article"}), sha256({"--lr", "0.1", "--momentum", "0", "--weight-decay", "0",
                                                     "--schedule", "constant", "--clip-norm", "0"}));
}

TEST_F(TrainLenet, OwnKernelsTrainLikeTheLibraries) {
  const auto loss = [&](const char* math) {
    EXPECT_EQ(train({"--math", math, "--limit", "32", "--batch-size", "16", "--epochs", "1", "--quiet",
                     "--json", path("run.json")})
                  .exit_code,
              0);
    return json_lines("run.json").front().at("train_loss").get<double>();
  };
  // Two steps apart by rounding only; 1e-4 leaves room for sums of 256 terms in another order.
  EXPECT_NEAR(loss("own"), loss("library"), 1e-4);
}

TEST_F(TrainLenet, Bfloat16TrainsLikeFloat32AndIsSaid) {
  const auto loss = [&](const char* precision, const char* reduce_in) {
    const Outcome outcome =
        train({"--precision", precision, "--reduce-in", reduce_in, "--devices", "2", "--limit", "64",
               "--batch-size", "32", "--epochs", "1", "--check-lockstep", "--json", path("run.json")});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    const bool said = outcome.out.find(std::string("products in ") + precision +
                                       ", gradients summed over the "
                                       "devices in " +
                                       reduce_in) != std::string::npos;
    EXPECT_EQ(said, std::string(precision) != "fp32") << outcome.out;
    return json_lines("run.json").front().at("train_loss").get<double>();
  };
  const double fp32 = loss("fp32", "fp32");
  // The mean loss of the first two steps, 2.3 or so: activations are rounded by 2^-8.
  const double bf16 = loss("bf16", "bf16");
  EXPECT_NEAR(bf16, fp32, 0.05);
  EXPECT_NE(bf16, fp32);
  EXPECT_EQ(loss("tf32", "fp32"), fp32) << "a CPU has no TF32";
}

TEST_F(TrainLenet, ItsAllreducesAreThoseOfTheHost) {
  for (const std::string& algorithm : collective::algorithm_names())
    for (const char* type : {"fp32", "bf16"}) {
      const Outcome outcome = train({"--devices", "3", "--batch-size", "30", "--epochs", "1", "--allreduce",
                                     algorithm, "--reduce-in", type, "--check-allreduce"},
                                    {"HOSTCUDA_DEVICES=2"});
      EXPECT_EQ(outcome.exit_code, 0) << algorithm << ": " << outcome.error;
      EXPECT_NE(outcome.out.find("comparing every allreduce with the sum on the host"), std::string::npos);
    }
}

TEST_F(TrainLenet, ReplicasStayInLockstep) {
  const Outcome outcome = train({"--devices", "3", "--batch-size", "16", "--epochs", "1", "--check-lockstep"},
                                {"HOSTCUDA_DEVICES=2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("comparing all replicas"), std::string::npos);
}

TEST_F(TrainLenet, EndsCleanlyOnCtrlC) {
  const Outcome outcome = run_program({TRAIN_LENET, "--data-dir", folder(), "--epochs", "100000",
                                       "--batch-size", "32", "--json", path("run.json")},
                                      {}, "images/s");
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_NE(outcome.error.find("interrupted after step"), std::string::npos) << outcome.error;
  for (const nlohmann::json& line : json_lines("run.json"))
    EXPECT_TRUE(line.contains("epoch"));  // whole lines only
}

TEST_F(TrainLenet, HelpTellsABeginnerTheOptions) {
  const Outcome outcome = run_program({TRAIN_LENET, "--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* option :
       {"--devices",         "--batch-size", "--lr",       "--epochs",    "--momentum", "--weight-decay",
        "--schedule",        "--init",       "--model",    "--allreduce", "--math",     "--precision",
        "--reduce-in",       "--seed",       "--data-dir", "--limit",     "--recipe",   "--check-lockstep",
        "--check-allreduce", "--quiet",      "--json"})
    EXPECT_NE(outcome.out.find(option), std::string::npos) << option;
}

struct BadInput {
  const char* name;
  std::vector<std::string> arguments;
  const char* message;  // part of the one line on standard error
};

class TrainLenetRefuses : public TrainLenet, public testing::WithParamInterface<BadInput> {};

TEST_P(TrainLenetRefuses, WithOneLineAndWithoutLeavingAnything) {
  std::vector<std::string> arguments = GetParam().arguments;
  arguments.insert(arguments.end(), {"--json", path("run.json")});
  const Outcome outcome = train(arguments);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_LT(outcome.exit_code, 126) << "ended by a signal";
  EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
  EXPECT_NE(outcome.error.find(GetParam().message), std::string::npos) << outcome.error;
  EXPECT_EQ(outcome.out, "");
  EXPECT_FALSE(std::filesystem::exists(path("run.json")));
}

INSTANTIATE_TEST_SUITE_P(
    Options, TrainLenetRefuses,
    testing::Values(BadInput{"NoDevices", {"--devices", "0"}, "--devices is 0"},
                    BadInput{"TooManyDevices", {"--devices", "1000"}, "asked for 1000 devices"},
                    BadInput{"NoBatch", {"--batch-size", "0"}, "--batch-size is 0"},
                    BadInput{
                        "BatchLargerThanTheData", {"--batch-size", "151"}, "there are 150 training images"},
                    BadInput{"NegativeRate", {"--lr", "-0.1"}, "--lr is -0.1"},
                    BadInput{"RateThatIsNoNumber", {"--lr", "nan"}, "--lr is nan"},
                    BadInput{"InfiniteRate", {"--lr", "inf"}, "--lr is inf"},
                    BadInput{"RateThatIsAWord", {"--lr", "fast"}, "--lr"},
                    BadInput{"Momentum", {"--momentum", "1"}, "--momentum is 1"},
                    BadInput{"Decay", {"--weight-decay", "-1"}, "--weight-decay is -1"},
                    BadInput{"NoEpochs", {"--epochs", "0"}, "--epochs is 0"},
                    BadInput{"NoLimit", {"--limit", "0"}, "--limit is 0: use 1 or more"},
                    BadInput{"NegativeLimit", {"--limit", "-5"}, "--limit is -5"},
                    BadInput{"LimitBeyondTheData", {"--limit", "151"}, "151"},
                    BadInput{"Algorithm", {"--allreduce", "rign"}, "did you mean 'ring'"},
                    BadInput{"Model", {"--model", "artcle"}, "did you mean 'article'"},
                    BadInput{"Schedule", {"--schedule", "cosin"}, "did you mean 'cosine'"},
                    BadInput{"Init", {"--init", "kaimng"}, "did you mean 'kaiming'"},
                    BadInput{"Math", {"--math", "onw"}, "did you mean 'own'"},
                    BadInput{"Precision", {"--precision", "bf61"}, "did you mean 'bf16'"},
                    BadInput{"ReduceIn", {"--reduce-in", "fp23"}, "did you mean 'fp32'"},
                    BadInput{"Recipe", {"--recipe", "articel"}, "did you mean 'article'"},
                    BadInput{"Option", {"--devcies", "2"}, "did you mean '--devices'"},
                    BadInput{"Word", {"two"}, "two"}, BadInput{"MissingValue", {"--lr"}, "--lr"}),
    [](const testing::TestParamInfo<BadInput>& bad) { return std::string(bad.param.name); });

// Spoils one file of the data set and expects its name in the one line of the error.
class TrainLenetData : public TrainLenet {
 protected:
  void expect_refusal(const std::string& file, const std::string& message) const {
    const Outcome outcome = train({"--json", path("run.json")});
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    EXPECT_NE(outcome.error.find(file), std::string::npos) << outcome.error;
    EXPECT_NE(outcome.error.find(message), std::string::npos) << outcome.error;
    EXPECT_FALSE(std::filesystem::exists(path("run.json")));
  }
};

TEST_F(TrainLenetData, MissingFileIsRefused) {
  std::filesystem::remove(path("train-labels-idx1-ubyte"));
  expect_refusal("train-labels-idx1-ubyte", "");
}

TEST_F(TrainLenetData, EmptyFileIsRefused) {
  folder_.write("train-labels-idx1-ubyte", {});
  expect_refusal("train-labels-idx1-ubyte", "");
}

TEST_F(TrainLenetData, TruncatedFileIsRefused) {
  std::filesystem::resize_file(path("train-images-idx3-ubyte"), 5000);
  expect_refusal("train-images-idx3-ubyte", "");
}

TEST_F(TrainLenetData, OtherCountsOfImagesAndLabelsAreRefused) {
  folder_.write("train-labels-idx1-ubyte", idx_labels(Bytes(kTrainRows - 1, 0)));
  expect_refusal("train", "149");
}

TEST_F(TrainLenetData, LabelOutsideTheClassesIsRefused) {
  Bytes labels(kTrainRows, 3);
  labels[17] = 10;
  folder_.write("train-labels-idx1-ubyte", idx_labels(labels));
  expect_refusal("train-labels-idx1-ubyte", "17");
}

TEST_F(TrainLenet, SaysAtWhichStepTheLossLeftTheNumbers) {
  const Outcome outcome = train({"--lr", "1e20", "--schedule", "constant", "--batch-size", "32"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
  for (const char* text : {"at step 2", "--lr", "--init", "data"})
    EXPECT_NE(outcome.error.find(text), std::string::npos) << outcome.error;
}

TEST_F(TrainLenet, SaysWhatWasAskedForWhenMemoryRunsOut) {
  const Outcome outcome = train({"--batch-size", "150"}, {"HOSTCUDA_MEMORY=3000000"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
  EXPECT_NE(outcome.error.find("device 0 is out of memory: asked for"), std::string::npos) << outcome.error;
}

TEST_F(TrainLenet, FindsAnUnwritableReportBeforeTraining) {
  const Outcome outcome = train({"--batch-size", "32", "--json", path("no/such/folder/run.json")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
  EXPECT_NE(outcome.error.find("cannot be written"), std::string::npos) << outcome.error;
}

}  // namespace
}  // namespace lockstep::apps
