// bench_allreduce as its users see it: the table, the lines of JSON, the plot, and every bad input.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/allreduce/measure.h"
#include "apps/allreduce/sizes.h"
#include "tests/apps/program.h"
#include "tests/nn/idx_files.h"

namespace lockstep::apps {
namespace {

Outcome bench(std::vector<std::string> arguments) {
  const bool counts = std::find(arguments.begin(), arguments.end(), "-n") != arguments.end();
  arguments.insert(arguments.begin(), {BENCH_ALLREDUCE, "-w", "0"});
  if (!counts) arguments.insert(arguments.end(), {"-n", "1"});
  return run_program(arguments, {"HOSTCUDA_THREADS=1"});
}

std::string content(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(BenchAllreduce, ChecksEveryTypeAndOperation) {
  const Outcome outcome = bench({"-b", "4", "-e", "4K", "-f", "32", "-g", "3", "-d", "all", "-o", "all"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("# wrong elements: 0 OK"), std::string::npos) << outcome.out;
  for (const char* title : {"# float sum, in place", "# bfloat16 mean, in place", "# half min, in place",
                            "# int32 max, in place"})
    EXPECT_NE(outcome.out.find(title), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("int32 mean"), std::string::npos);
}

TEST(BenchAllreduce, PrintsTheTableOfNcclTestsWithin80Columns) {
  const Outcome outcome =
      bench({"-b", "1K", "-e", "64K", "-f", "8", "-g", "2", "--algorithm", "ring", "--graph", "-m", "2"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("\n   1K       256 float  sum "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\n  64K     16384 float  sum "), std::string::npos) << outcome.out;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(BenchAllreduce, WritesALineOfJsonPerResultAndAPlot) {
  const data::TemporaryFolder folder;
  const auto json = folder.path() / "out.json", plot = folder.path() / "out.svg";
  const Outcome outcome = bench(
      {"-b", "64", "-e", "4K", "-f", "64", "-g", "2", "--json", json.string(), "--plot", plot.string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  std::istringstream lines(content(json));
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto row = nlohmann::json::parse(line);
    const auto& time = row.at("in_place");
    EXPECT_EQ(time.at("wrong"), 0);
    EXPECT_GT(time.at("microseconds"), 0);
    EXPECT_NEAR(time.at("algbw").get<double>(),
                row.at("bytes").get<double>() / time.at("microseconds").get<double>() / 1e3, 1e-9);
    EXPECT_EQ(time.at("busbw"), time.at("algbw"));  // 2 (k - 1) / k is 1 for 2 devices
  }
  EXPECT_EQ(count, 2 * collective::algorithms().size());
  const std::string svg = content(plot);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n")) << svg;
  for (const std::string& name : collective::algorithm_names())
    EXPECT_NE(svg.find(">" + name + "<"), std::string::npos) << name;
}

// A buffer that comes out wrong is counted, and so is a write beside it.
TEST(BenchAllreduce, CountsEveryWrongElement) {
  for (const char* algorithm : {"ring", "two_shot"}) {
    AllreduceBench right({make_devices(3), algorithm, DType::float32, collective::Reduction::mean, 50},
                         {.warm_up = 0, .iterations = 1});
    EXPECT_EQ(right.in_place().wrong, 0);
    EXPECT_EQ(right.out_of_place().wrong, 0);
  }
  std::vector<Tensor> whole;
  for (const Device& device : make_devices(2)) whole.push_back(guarded_buffer(0, 5, DType::float32, device));
  // Both as rank 0 began: in four of five elements rank 1 had more.
  EXPECT_EQ(wrong_elements(whole, 5, collective::Reduction::max), 8);
  for (const Tensor& buffer : whole) buffer.slice(0, 3).set_to_zero();  // of the guard
  EXPECT_EQ(wrong_elements(whole, 5, collective::Reduction::max), 8 + 6);
}

TEST(BenchAllreduce, Sizes) {
  EXPECT_EQ(parse_size("--begin", "4096"), 4096);
  EXPECT_EQ(parse_size("--begin", "4k"), 4096);
  EXPECT_EQ(parse_size("--begin", "3G"), int64_t{3} << 30);
  EXPECT_EQ(size_text(65536), "64K");
  EXPECT_EQ(size_text(1000), "1000");
  EXPECT_EQ(size_text(0), "0");
  EXPECT_EQ(sizes_between("1K", "5K", 2), (std::vector<int64_t>{1024, 2048, 4096}));
}

TEST(BenchAllreduce, RefusesWhatMakesNoSenseInOneLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"-b", "4X"}, "--begin is '4X': use bytes up to 1024G, as 4096, 4K or 16M"},
      {{"-b", "-4"}, "--begin is '-4': use bytes up to 1024G, as 4096, 4K or 16M"},
      {{"-e", "99999999999999999999"},
       "--end is '99999999999999999999': use bytes up to 1024G, as 4096, 4K or 16M"},
      {{"-b", "1M", "-e", "1K"}, "--end is 1K, which is less than --begin, 1M: use as much or more"},
      {{"-b", "0"}, "--begin is 0: use 4 bytes or more"},
      {{"-f", "1"}, "--factor is 1: use 2 to 1024"},
      {{"-g", "65"}, "--devices is 65: use 1 to 64"},
      {{"-n", "0"}, "--iterations is 0: use 1 or more"},
      {{"-c", "2"}, "--check is 2: use 0 or 1"},
      {{"-d", "int32", "-o", "mean"},
       "--operation mean --type int32: a mean of integers is no integer: use another type"},
  };
  for (const auto& [arguments, line] : cases) {
    const Outcome outcome = bench(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << line;
    EXPECT_EQ(outcome.error, "bench_allreduce: " + line + "\n");
  }
  for (const auto& [arguments, start] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--algorithm", "rign"},
            "bench_allreduce: --algorithm: unknown name 'rign', did you mean 'ring'?"},
           {{"-d", "floot"}, "bench_allreduce: --type: unknown name 'floot', did you mean 'float'?"},
           {{"--plot", "/no/such/folder/x.svg"}, "bench_allreduce: /no/such/folder"}}) {
    const Outcome outcome = bench(arguments);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(outcome.error.starts_with(start)) << outcome.error;
  }
}

}  // namespace
}  // namespace lockstep::apps
