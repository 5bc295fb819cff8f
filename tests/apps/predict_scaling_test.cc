// predict_scaling as its users see it, and the step that it computes with.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/common/models.h"
#include "apps/scaling/plot.h"
#include "apps/scaling/step.h"
#include "core/text_file.h"
#include "tests/apps/program.h"
#include "tests/nn/idx_files.h"

namespace lockstep::apps {
namespace {

std::string refusal(std::vector<std::string> options) {
  options.insert(options.begin(), PREDICT_SCALING);
  const Outcome outcome = run_program(options);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
  return outcome.error;
}

// The lines of --json by algorithm and devices.
std::map<std::pair<std::string, int>, nlohmann::json> results(std::vector<std::string> options) {
  const data::TemporaryFolder folder;
  const std::string file = (folder.path() / "results.json").string();
  options.insert(options.begin(), PREDICT_SCALING);
  options.insert(options.end(), {"--json", file});
  const Outcome outcome = run_program(options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  std::map<std::pair<std::string, int>, nlohmann::json> rows;
  std::istringstream lines(read_text(file));
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    rows[{row["algorithm"], row["devices"]}] = row;
  }
  return rows;
}

TEST(PredictScaling, FourThousandDevicesFitATerminal) {
  const data::TemporaryFolder folder;
  const std::string plot = (folder.path() / "plot.svg").string();
  const Outcome outcome =
      run_program({PREDICT_SCALING, "--devices", "4096", "--model", "resnet18", "--plot", plot});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("# resnet18: 11175818 parameters, 44.7 MB of gradients"), std::string::npos);
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_NE(outcome.out.find("\n   4096 halving_doubling"), std::string::npos) << outcome.out;
  const std::string svg = read_text(plot);
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 80);
  EXPECT_NE(svg.find(">halving_doubling</text>"), std::string::npos);
}

TEST(PredictScaling, TheChaptersNumbers) {
  // 160 MB over four GPUs: 60 ms through one of them, 80 through the CPU, 15 in pieces.
  auto rows = results({"--topology", FOUR_GPUS, "--hub", "cpu", "--parameters", "40000000"});
  EXPECT_NEAR((rows[{"star", 4}]["allreduce_ms"]), 60, 0.01);
  EXPECT_NEAR((rows[{"hub", 4}]["allreduce_ms"]), 80, 0.01);
  EXPECT_NEAR((rows[{"sharded_star", 4}]["allreduce_ms"]), 15, 0.01);
  // Over eight, three rings at 18 GB/s, in both directions: half of 2 * 7/8 * 160 MB / 54 GB/s.
  rows = results({"--topology", EIGHT_GPUS, "--alpha-us", "0", "--parameters", "40000000"});
  EXPECT_NEAR((rows[{"rings", 8}]["allreduce_ms"]), 2.593, 0.001);
}

TEST(PredictScaling, StrongScalingSharesTheComputation) {
  auto weak = results({"--devices", "4", "--model", "lenet", "--algorithm", "ring", "--compute-ms", "8"});
  auto strong =
      results({"--devices", "4", "--model", "lenet", "--algorithm", "ring", "--compute-ms", "8", "--strong"});
  EXPECT_EQ((weak[{"ring", 4}]["compute_ms"]), 8);
  EXPECT_EQ((strong[{"ring", 4}]["compute_ms"]), 2);
  EXPECT_EQ((weak[{"ring", 4}]["allreduce_ms"]), (strong[{"ring", 4}]["allreduce_ms"]));
  EXPECT_EQ((strong[{"ring", 1}]["speed_up"]), 1);
  EXPECT_LT((strong[{"ring", 4}]["efficiency"]), (weak[{"ring", 4}]["efficiency"]));
}

TEST(PredictScaling, SaysWhatIsWrongInOneLine) {
  EXPECT_EQ(refusal({"--devices", "4097"}), "predict_scaling: --devices is 4097: use 1 to 4096\n");
  EXPECT_EQ(refusal({"--devices", "0"}), "predict_scaling: --devices is 0: use 1 to 4096\n");
  EXPECT_EQ(
      refusal({"--devices", "8", "--topology", FOUR_GPUS}),
      "predict_scaling: --devices is 8: the topology has 4 devices, and no uplinks to further servers\n");
  EXPECT_EQ(refusal({"--topology", FOUR_GPUS, "--hub", "cup"}),
            "predict_scaling: --hub: unknown name 'cup', did you mean 'cpu'? (0, 1, 2, 3, switch, cpu)\n");
  EXPECT_EQ(refusal({"--hub", "cpu"}),
            "predict_scaling: --hub: it is a node of a topology: give one by --topology\n");
  EXPECT_EQ(
      refusal({"--algorithm", "rings"}),
      "predict_scaling: --algorithm rings: they are laid over a matrix of links: give one by --topology\n");
  EXPECT_TRUE(refusal({"--algorithm", "rign"})
                  .starts_with("predict_scaling: --algorithm: unknown name 'rign', did you mean 'ring'?"));
  EXPECT_TRUE(
      refusal({"--model", "resnet81"}).starts_with("predict_scaling: model: unknown name 'resnet81'"));
  EXPECT_EQ(refusal({"--compute-ms", "-1"}),
            "predict_scaling: --compute-ms is -1: use more than 0, up to 1e9\n");
  EXPECT_EQ(refusal({"--strong", "--weak"}), "predict_scaling: --strong, --weak: use one of them\n");
}

TEST(ScalingStep, BucketsGoFromTheLastLayerToTheFirst) {
  // Four layers with a bias each; the first bucket is full with 40 bytes, the others with 1000.
  const std::vector<GradientTensor> gradients{{100, true}, {1, false}, {200, true}, {2, false},
                                              {60, true},  {3, false}, {7, true},   {4, false}};
  const auto buckets = buckets_of(gradients, 40, 1000);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[0].count, 11);
  EXPECT_EQ(buckets[0].ready, 0.25);
  EXPECT_EQ(buckets[1].count, 3 + 60 + 2 + 200);
  EXPECT_EQ(buckets[1].ready, 0.75);
  EXPECT_EQ(buckets[2].count, 101);
  EXPECT_EQ(buckets[2].ready, 1);
}

TEST(ScalingStep, ABucketWaitsForItsGradientsAndForTheBucketBefore) {
  const auto a_second_each = [](int64_t count) { return static_cast<double>(count); };
  // Forward 1 s, backward 2 s: the first bucket starts at 2 and takes until 4, the second is ready at 3.
  const StepTime time = step_time({{2, 0.5}, {1, 1}}, 3, a_second_each);
  EXPECT_DOUBLE_EQ(time.step, 5);
  EXPECT_DOUBLE_EQ(time.communication, 3);
  EXPECT_DOUBLE_EQ(time.one_by_one, 6);
  EXPECT_NEAR(time.hidden(), 1.0 / 3, 1e-12);
  // The second only waits for its gradients.
  EXPECT_DOUBLE_EQ(step_time({{1, 0.25}, {1, 1}}, 3, a_second_each).step, 4);
  EXPECT_EQ(step_time({{5, 1}}, 3, [](int64_t) { return 0.0; }).hidden(), 1);
}

TEST(ScalingStep, AllGradientsOfAModelAreThere) {
  for (const auto& [model, parameters] : {std::pair("lenet", 44'426), std::pair("resnet18", 11'175'818)}) {
    int64_t count = 0;
    for (const GradientBucket& bucket : buckets_of(gradients_of_model(model), 1 << 20, 25 << 20))
      count += bucket.count;
    EXPECT_EQ(count, parameters) << model;
  }
  int64_t count = 0;
  for (const GradientTensor& gradient : even_gradients(1'000'003, 16)) count += gradient.count;
  EXPECT_EQ(count, 1'000'003);
}

TEST(EfficiencyPlot, HasALineForEachAlgorithmWithAndWithoutOverlap) {
  const std::string svg =
      efficiency_plot({{"a<b", 1, 1, 1}, {"a<b", 2, 0.9, 0.5}, {"c", 1, 1, 1}, {"c", 2, 0.4, 0.3}}, "t & u");
  EXPECT_NE(svg.find(">a&lt;b</text>"), std::string::npos);
  EXPECT_NE(svg.find(">t &amp; u</text>"), std::string::npos);
  size_t dotted = 0;
  for (size_t at = svg.find("dasharray"); at != std::string::npos; at = svg.find("dasharray", at + 1))
    ++dotted;
  EXPECT_EQ(dotted, 2u);
}

}  // namespace
}  // namespace lockstep::apps
