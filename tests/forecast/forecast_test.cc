// The forecast: its model's terms against numbers by hand, GPU files with faults, and the ladders that others
// have timed, each rung of which must be in its order and within a factor of 2 (docs/forecast.md).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/apps/program.h"

namespace {

using Json = nlohmann::json;

struct Outcome {
  int exit_code;
  std::string output;  // both streams
  Json forecast;
};

std::string temporary(const char* ending) {
  return testing::TempDir() + "/forecast_" + std::to_string(getpid()) + ending;
}

Outcome run(const std::string& program, const std::string& gpu, const std::vector<std::string>& arguments) {
  const std::string file = temporary(".json");
  std::vector<std::string> command{program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  // Blocks that are not recorded are not run: all of them would take hours.
  const auto ran =
      lockstep::apps::run_program(command, {"HOSTCUDA_FORECAST=" + gpu, "HOSTCUDA_FORECAST_JSON=" + file,
                                            "HOSTCUDA_PROFILE_BLOCKS=4", "HOSTCUDA_PROFILE_ONLY=1"});
  Outcome outcome{ran.exit_code, ran.out + ran.error, {}};
  std::ifstream json(file);
  if (json) outcome.forecast = Json::parse(json);
  std::remove(file.c_str());
  return outcome;
}

struct Kernel {
  double seconds;
  std::string bound;
};

// The rung's kernel; the program fills its memory before.
Kernel rung(const std::string& gpu, const std::string& name, int n) {
  const Outcome outcome = run(LADDER_PROGRAM, gpu, {name, std::to_string(n)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const Json& kernel : outcome.forecast["kernels"])
    if (kernel["name"] != "cudaMemsetAsync") return {kernel["seconds"], kernel["bound_by"]};
  ADD_FAILURE() << "no kernel in " << outcome.forecast.dump(1);
  return {};
}

struct Published {
  const char* kernel;
  double figure;  // the higher the better
  const char* bound;
};

// Each rung is better than the one before, and within a factor of 2 of what was measured.
void expect_ladder(const std::string& gpu, int n, double work, const std::vector<Published>& ladder) {
  double before = 0;
  for (const Published& step : ladder) {
    const Kernel kernel = rung(gpu, step.kernel, n);
    const double figure = work / kernel.seconds;
    const double ratio = figure / step.figure;
    std::printf("%-20s forecast %8.4g, measured %8.4g, ratio %.2f, bound by %s\n", step.kernel, figure,
                step.figure, ratio, kernel.bound.c_str());
    EXPECT_GT(figure, before) << step.kernel << " is no better than the step before it";
    EXPECT_GT(ratio, 0.5) << step.kernel;
    EXPECT_LT(ratio, 2.0) << step.kernel;
    EXPECT_EQ(kernel.bound, step.bound) << step.kernel;
    before = figure;
  }
}

constexpr int kN = 4096;

// GFLOP/s.
TEST(Forecast, HasTheLadderOfProductsInItsOrder) {
  expect_ladder("a6000", kN, 2e-9 * kN * kN * kN,
                {{"product_naive", 309, "L1 sectors"},
                 {"product_coalesced", 1987, "L1 sectors"},
                 {"product_tiled", 2980, "shared mem"},
                 {"product_column", 8475, "shared mem"},
                 {"product_square", 15972, "shared mem"},
                 {"product_vectors", 18237, "instructions"}});
}

// GB/s, read and written.
TEST(Forecast, HasTheLadderOfTransposesInItsOrder) {
  expect_ladder("a100", kN, 8e-9 * kN * kN,
                {{"transpose_naive", 150, "DRAM"},
                 {"transpose_tiled", 900, "shared mem"},
                 {"transpose_padded", 1600, "DRAM"}});
  expect_ladder("h100", kN, 8e-9 * kN * kN,
                {{"transpose_naive", 475, "DRAM"}, {"transpose_padded", 0.88 * 3350, "DRAM"}});
}

TEST(Forecast, KnowsTheBandwidthOfACopy) {
  expect_ladder("a100", kN, 8e-9 * kN * kN, {{"copy", 1870, "DRAM"}});
  expect_ladder("a100", kN, 8e-9 * kN * kN, {{"copy_wide", 1870, "DRAM"}});
}

// GB/s of 2^22 integers, as Harris gives them.
TEST(Forecast, HasTheLadderOfReductionsInItsOrder) {
  expect_ladder(LADDER_FOLDER "/g80.json", 2048, 4e-9 * 2048 * 2048,
                {{"reduce_divergent", 2.083, "instructions"},
                 {"reduce_strided", 4.854, "instructions"},
                 {"reduce_sequential", 9.741, "instructions"},
                 {"reduce_first", 17.377, "instructions"},
                 {"reduce_last_warp", 31.289, "instructions"},
                 {"reduce_many", 62.671, "DRAM"}});
}

TEST(Forecast, SaysForecastInEightyColumns) {
  const Outcome outcome = run(LADDER_PROGRAM, "h200", {"transpose_tiled", "256"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("Forecast for one H200"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("not a measurement"), std::string::npos);
  EXPECT_NE(outcome.output.find("transpose_tiled<32>"), std::string::npos);
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_EQ(outcome.forecast["of"], "run");  // nobody has marked a step
  EXPECT_EQ(outcome.forecast["launches"], 1);
  EXPECT_EQ(outcome.forecast["copies"], 3);
}

TEST(Forecast, TakesTheStepThatMostAreLike) {
  const Outcome outcome = run(LADDER_PROGRAM, "h200", {"steps", "512"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const Json& step = outcome.forecast;
  EXPECT_EQ(step["of"], "step");
  EXPECT_EQ(step["steps"], 3);
  EXPECT_EQ(step["steps_like_it"], 2);
  EXPECT_EQ(step["launches"], 2);
  EXPECT_EQ(step["copies"], 0);  // the fills before are not of it
  EXPECT_DOUBLE_EQ(step["host_seconds"], 5e-6);
  EXPECT_DOUBLE_EQ(step["items_per_second"], 640 / step["seconds"].get<double>());
  EXPECT_NE(outcome.output.find("images/s at 640 per step"), std::string::npos) << outcome.output;
}

TEST(Forecast, AGraphIsOneCallAndAllItsLaunches) {
  const Outcome outcome = run(LADDER_PROGRAM, "h200", {"graphs", "512"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.forecast["launches"], 3);
  EXPECT_DOUBLE_EQ(outcome.forecast["host_seconds"], 10e-6);
}

// By what four of the blocks touch: a product's rows and columns are those of the whole matrices, whatever
// blocks share; a transpose's sectors are each block's own.
TEST(Forecast, CountsTheDistinctSectorsOfTheWholeLaunch) {
  const double matrix = 4.0 * 1024 * 1024;
  const auto counts = [](const char* name) {
    const Outcome outcome = run(LADDER_PROGRAM, "a6000", {name, "1024"});
    for (const Json& kernel : outcome.forecast["kernels"])
      if (kernel.contains("dearest")) return kernel["dearest"];
    throw std::runtime_error("no kernel was recorded: " + outcome.output);
  };
  const Json product = counts("product_tiled");
  EXPECT_DOUBLE_EQ(product["read_bytes"], 2 * matrix);
  EXPECT_DOUBLE_EQ(product["written_bytes"], matrix);
  EXPECT_DOUBLE_EQ(product["operations"], 2.0 * 1024 * 1024 * 1024);
  const Json transpose = counts("transpose_padded");
  EXPECT_DOUBLE_EQ(transpose["read_bytes"], matrix);
  EXPECT_DOUBLE_EQ(transpose["written_bytes"], matrix);
  EXPECT_DOUBLE_EQ(transpose["l2_bytes"], 2 * matrix);
}

TEST(Forecast, SaysThatThereIsNothingToForecast) {
  const Outcome outcome = run(LADDER_PROGRAM, "h200", {"nothing", "256"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.output.find("there is nothing to forecast"), std::string::npos) << outcome.output;
}

TEST(Forecast, SaysWhatToDoWithoutTheCallbacks) {
  const Outcome outcome = run(PLAIN_PROGRAM, "h200", {});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("use ./lab PROGRAM --forecast GPU"), std::string::npos) << outcome.output;
}

TEST(Forecast, NamesTheNearestGpu) {
  const Outcome outcome = run(LADDER_PROGRAM, "h20O", {"copy", "256"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.output.find("there is no GPU 'h20O', did you mean 'h200'?"), std::string::npos)
      << outcome.output;
}

// A GPU file with one fault, and what is said of it.
std::string fault(const std::function<void(Json&)>& change) {
  std::ifstream good(LADDER_FOLDER "/g80.json");
  Json gpu = Json::parse(good);
  change(gpu);
  const std::string file = temporary(".gpu.json");
  std::ofstream(file) << gpu.dump();
  const Outcome outcome = run(LADDER_PROGRAM, file, {"copy", "256"});
  std::remove(file.c_str());
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  return outcome.output;
}

TEST(ForecastGpuFile, NamesTheFieldThatIsMissing) {
  EXPECT_NE(fault([](Json& gpu) { gpu.erase("clock_ghz"); }).find("field 'clock_ghz' is missing"),
            std::string::npos);
}

TEST(ForecastGpuFile, NamesTheFieldThatIsNegative) {
  EXPECT_NE(fault([](Json& gpu) { gpu["dram_gb_s"] = -1; }).find("field 'dram_gb_s' is -1"),
            std::string::npos);
}

TEST(ForecastGpuFile, NamesTheFieldThatIsNoNumber) {
  EXPECT_NE(fault([](Json& gpu) { gpu["l2_mb"] = "6"; }).find("field 'l2_mb' is no number"),
            std::string::npos);
}

TEST(ForecastGpuFile, NamesTheFieldThatIsMisspelt) {
  EXPECT_NE(fault([](Json& gpu) {
              gpu["clok_ghz"] = gpu["clock_ghz"];
              gpu.erase("clock_ghz");
            }).find("unknown field 'clok_ghz', did you mean 'clock_ghz'?"),
            std::string::npos);
}

TEST(ForecastGpuFile, SaysThatItCannotBeRead) {
  const Outcome outcome = run(LADDER_PROGRAM, "/none/such.json", {"copy", "256"});
  EXPECT_NE(outcome.output.find("cannot read the GPU file '/none/such.json'"), std::string::npos)
      << outcome.output;
}

}  // namespace
