// A training program run on a small data set in Fashion-MNIST's format, and what it reported.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/apps/program.h"
#include "tests/apps/small_fashion_mnist.h"

namespace lockstep::apps {

class TrainingRun : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (images_.folder().path() / name).string(); }

  Outcome run(const std::string& program, const std::vector<std::string>& arguments,
              std::vector<std::string> environment = {}) const {
    std::vector<std::string> command{program, "--data-dir", images_.path()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    environment.insert(environment.begin(), "HOSTCUDA_THREADS=1");
    return run_program(command, environment);
  }

  // The lines of JSON that a quiet run wrote: one an epoch, and the totals.
  std::vector<nlohmann::json> report(const std::string& program, std::vector<std::string> arguments) const {
    std::filesystem::remove(path("run.json"));
    arguments.insert(arguments.begin(), {"--quiet", "--json", path("run.json")});
    const Outcome outcome = run(program, arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_EQ(outcome.out, "");
    std::ifstream in(path("run.json"));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    if (!lines.empty()) lines.erase(lines.begin());  // what run it is
    EXPECT_GE(lines.size(), 2U);
    lines.resize(std::max<size_t>(lines.size(), 2));
    return lines;
  }

  // Refused before anything is read or written, with one line that holds `message`.
  void expect_refusal(const std::string& program, const std::vector<std::string>& arguments,
                      const std::string& message) const {
    std::vector<std::string> command{program, "--json", path("run.json"), "--data-dir", "/nonexistent"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_program(command);
    EXPECT_TRUE(outcome.exit_code == 1 || outcome.exit_code == 2) << outcome.exit_code;
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    EXPECT_NE(outcome.error.find(message), std::string::npos) << outcome.error;
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(std::filesystem::exists(path("run.json")));
  }

  const SmallFashionMnist images_{150, 40};
};

}  // namespace lockstep::apps
