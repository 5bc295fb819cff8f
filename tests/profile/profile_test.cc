// The profile of kernels whose costs are known: each runs in a process of its own (profile_program.cu), and
// what the profile says of its lines is held against what the hardware's rules give by hand. The figures are
// those that books and lectures state: a naive transpose takes 32 sectors a store, shared memory without
// padding conflicts 32-fold.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/apps/program.h"

namespace {

using Json = nlohmann::json;

struct Outcome {
  int exit_code;
  std::string output;
  Json kernel;  // the only one
};

Outcome run(const std::string& kernel, const std::string& environment = "HOSTCUDA_PROFILE_BLOCKS=0") {
  const std::string file = testing::TempDir() + "/profile_" + std::to_string(getpid()) + ".json";
  const auto ran =
      lockstep::apps::run_program({PROFILE_PROGRAM, kernel}, {"HOSTCUDA_PROFILE=" + file, environment});
  Outcome outcome{ran.exit_code, ran.out + ran.error, {}};
  std::ifstream json(file);
  if (json) outcome.kernel = Json::parse(json)["kernels"][0];
  std::remove(file.c_str());
  return outcome;
}

// The line of the program that has "[marker]".
int line_of(const std::string& marker) {
  std::ifstream source(PROFILE_SOURCE);
  int number = 1;
  for (std::string line; std::getline(source, line); ++number)
    if (line.find("[" + marker + "]") != std::string::npos) return number;
  ADD_FAILURE() << "no line is marked [" << marker << "]";
  return 0;
}

Json entry(const Outcome& outcome, const std::string& marker, const std::string& space,
           const std::string& kind) {
  const int number = line_of(marker);
  for (const Json& line : outcome.kernel["lines"])
    if (line["line"] == number && line["space"] == space && line["kind"] == kind) return line;
  ADD_FAILURE() << "no " << space << " " << kind << " on line " << number << " [" << marker << "] in\n"
                << outcome.kernel.dump(1);
  return {};
}

double sectors(const Outcome& outcome, const std::string& marker, const std::string& kind) {
  return entry(outcome, marker, "global", kind).value("sectors_per_request", -1.0);
}

double passes(const Outcome& outcome, const std::string& marker, const std::string& kind) {
  return entry(outcome, marker, "shared", kind).value("bank_passes", -1.0);
}

TEST(Profile, CountsTheSectorsOfATranspose) {
  const Outcome naive = run("transpose_naive");
  ASSERT_EQ(naive.exit_code, 0) << naive.output;
  EXPECT_EQ(sectors(naive, "naive load", "load"), 4);
  EXPECT_EQ(sectors(naive, "naive store", "store"), 32);
  const Json store = entry(naive, "naive store", "global", "store");
  EXPECT_EQ(store["requests"], 256 * 256 / 32);
  EXPECT_EQ(store["lanes_per_request"], 32);
  EXPECT_EQ(store["bytes_asked"], 256 * 256 * 4);
  EXPECT_EQ(store["bytes_moved"], 256 * 256 * 32);
  EXPECT_EQ(store["stride"], 256 * 4);
  EXPECT_EQ(store["width"], 4);
  EXPECT_NE(store["diagnosis"].get<std::string>().find("1024 bytes apart"), std::string::npos);
  EXPECT_FALSE(entry(naive, "naive load", "global", "load").contains("diagnosis"));

  for (const char* kernel : {"transpose_tiled", "transpose_padded"}) {
    const Outcome tiled = run(kernel);
    EXPECT_EQ(sectors(tiled, "tiled load", "load"), 4);
    EXPECT_EQ(sectors(tiled, "tiled store", "store"), 4);
    EXPECT_EQ(tiled.kernel["races"], Json::array());
  }
}

TEST(Profile, CountsTheBankConflictsOfATranspose) {
  const Outcome tiled = run("transpose_tiled"), padded = run("transpose_padded");
  EXPECT_EQ(passes(tiled, "tile store", "store"), 1);
  EXPECT_EQ(passes(tiled, "tile load", "load"), 32);
  EXPECT_EQ(passes(padded, "tile store", "store"), 1);
  EXPECT_EQ(passes(padded, "tile load", "load"), 1);
  EXPECT_EQ(tiled.kernel["static_shared_bytes"], 32 * 32 * 4);
  EXPECT_EQ(padded.kernel["static_shared_bytes"], 32 * 33 * 4);
}

// 256 threads. Divergent: in step s, of 1, 2, 4, ..., the threads at multiples of 2 s add; all 8 warps take
// part up to s = 16, then 4, 2 and 1. So 5 * 8 + 4 + 2 + 1 requests for 255 additions. Sequential: 128, 64,
// ... neighbours add: 4, 2, 1, 1, 1, 1, 1, 1 requests.
TEST(Profile, ShowsTheLadderOfReductions) {
  const double blocks = 256, additions = 255;
  const Outcome divergent = run("reduce_divergent");
  const Json far = entry(divergent, "divergent", "shared", "store");
  EXPECT_EQ(far["requests"], blocks * (5 * 8 + 4 + 2 + 1));
  EXPECT_DOUBLE_EQ(far["lanes_per_request"], additions / 47);
  EXPECT_NE(far["diagnosis"].get<std::string>().find("5 of 32 threads"), std::string::npos);

  const Outcome strided = run("reduce_strided");
  const Json store = entry(strided, "strided", "shared", "store");
  EXPECT_EQ(store["requests"], blocks * 12);
  EXPECT_DOUBLE_EQ(store["lanes_per_request"], additions / 12);
  // Words 2 s apart: 2 passes in each of 4 requests, 4 in 2, 8, 16 for 16 and 8 threads and then half as many
  // each.
  EXPECT_DOUBLE_EQ(store["bank_passes"], (4 * 2 + 2 * 4 + 8 + 8 + 8 + 4 + 2 + 1) / 12.0);

  const Outcome sequential = run("reduce_sequential");
  const Json near = entry(sequential, "sequential", "shared", "store");
  EXPECT_EQ(near["requests"], blocks * 12);
  EXPECT_EQ(near["bank_passes"], 1);
  for (const Outcome* outcome : {&divergent, &strided, &sequential})
    EXPECT_EQ(outcome->kernel["races"], Json::array());
}

TEST(Profile, ShowsHowWideAMatrixProductsAccessesAre) {
  const Outcome naive = run("product_naive");
  EXPECT_EQ(sectors(naive, "product a", "load"), 1);  // all threads of a warp read one word
  EXPECT_EQ(sectors(naive, "product b", "load"), 4);
  EXPECT_EQ(entry(naive, "product b", "global", "load")["width"], 4);
  EXPECT_EQ(entry(naive, "product b", "global", "load")["longest_chain"], 256);
  EXPECT_EQ(naive.kernel["longest_global_chain"], 2 * 256 + 1);

  const Outcome vectorised = run("product_vectorised");
  EXPECT_EQ(entry(vectorised, "vector b", "global", "load")["width"], 16);
  EXPECT_EQ(sectors(vectorised, "vector b", "load"), 16);
  EXPECT_EQ(entry(vectorised, "vector c", "global", "store")["width"], 16);
  EXPECT_FALSE(entry(vectorised, "vector b", "global", "load").contains("diagnosis"));
}

// The sampled counts stand for all blocks; these are alike, so they are the same.
TEST(Profile, ScalesWhatItSampled) {
  const Outcome all = run("transpose_naive"), some = run("transpose_naive", "HOSTCUDA_PROFILE_BLOCKS=6");
  EXPECT_EQ(all.kernel["recorded_blocks"], 64);
  EXPECT_EQ(some.kernel["recorded_blocks"], 6);
  EXPECT_EQ(all.kernel["lines"], some.kernel["lines"]);
  const Outcome many = run("many");
  EXPECT_EQ(many.kernel["launches"], 10);
  EXPECT_EQ(many.kernel["recorded_blocks"], 2 * 64);
  EXPECT_EQ(many.kernel["bytes_moved"], 10 * all.kernel["bytes_moved"].get<double>());
}

TEST(Profile, SaysWhichOfALinesLoadsIsBad) {
  const Outcome outcome = run("two_loads");
  EXPECT_EQ(sectors(outcome, "two loads", "load"), (4 + 32) / 2);
  const std::string text = entry(outcome, "two loads", "global", "load").value("diagnosis", "");
  EXPECT_NE(text.find("32 sectors a request where 4 would do: neighbouring threads are 256 bytes apart"),
            std::string::npos)
      << text;
}

TEST(Profile, KeepsLanesTogetherInLongLoops) {
  const Outcome rows = run("long_rows");
  const Json load = entry(rows, "long", "global", "load");
  EXPECT_EQ(load["requests"], 2 * 20000);
  EXPECT_EQ(load["lanes_per_request"], 32);
  EXPECT_EQ(load["longest_chain"], 20000);
}

// The only race of a kernel: its lines in the order of the text as a thread runs it, and what is said to be
// missing.
void expect_race(const std::string& kernel, const std::string& earlier, const std::string& later,
                 const std::string& between, const std::string& missing) {
  SCOPED_TRACE(kernel);
  const Outcome outcome = run(kernel);
  ASSERT_EQ(outcome.kernel["races"].size(), 1) << outcome.kernel["races"].dump(1) << outcome.output;
  const Json race = outcome.kernel["races"][0];
  EXPECT_EQ(race["earlier"]["line"], line_of(earlier));
  EXPECT_EQ(race["later"]["line"], line_of(later));
  EXPECT_EQ(race["between"], between);
  EXPECT_NE(race["text"].get<std::string>().find(missing), std::string::npos) << race["text"];
}

std::string lines(const std::string& first, const std::string& second) {
  return std::to_string(line_of(first)) + " and " + std::to_string(line_of(second));
}

TEST(ProfileRaces, NamesBothLinesWhereABarrierIsMissing) {
  expect_race("reverse_race", "reverse store", "reverse load", "threads",
              "__syncthreads() between lines " + lines("reverse store", "reverse load"));
  expect_race("shift_rounds_race", "round load", "round store", "threads",
              "__syncthreads() between lines " + lines("round load", "round store"));
}

TEST(ProfileRaces, NamesTheSharedArrayTheBlockAndTheThreads) {
  const Outcome outcome = run("reverse_race");
  const Json race = outcome.kernel["races"][0];
  EXPECT_EQ(race["count"], 8 * 256);
  EXPECT_EQ(race["place"].get<std::string>().substr(0, 11), "shared tile");
  EXPECT_EQ(race["earlier"]["kind"], "store");
  EXPECT_EQ(race["later"]["kind"], "load");
  EXPECT_EQ(race["earlier"]["block"], race["later"]["block"]);
  EXPECT_EQ(race["earlier"]["thread"][0].get<int>() + race["later"]["thread"][0].get<int>(), 255);
}

TEST(ProfileRaces, NamesAMissingSyncwarp) {
  expect_race("warp_race", "warp store", "warp load", "lanes",
              "__syncwarp() between lines " + lines("warp store", "warp load"));
  expect_race("halves_race", "half store", "half load", "lanes",
              "__syncwarp() between lines " + lines("half store", "half load"));
}

TEST(ProfileRaces, NamesBlocksThatShareAWord) {
  expect_race("count_race", "count", "count", "blocks", "atomic");
  expect_race("last_block_race", "part store", "part load", "blocks", "__threadfence()");
}

TEST(ProfileRaces, AnAtomicOperationRacesWithAnOrdinaryOne) {
  expect_race("atomic_and_plain_race", "plain", "atomic", "threads", "lines " + lines("plain", "atomic"));
}

TEST(ProfileRaces, ReportsNothingThatIsOrdered) {
  for (const char* kernel :
       {"transpose_naive", "transpose_tiled", "reduce_sequential", "reduce_shuffles", "reverse",
        "shift_rounds", "warp", "ended_lane", "count", "histogram", "last_block", "raise_flag", "bytes"}) {
    const Outcome outcome = run(kernel);
    EXPECT_EQ(outcome.exit_code, 0) << kernel << "\n" << outcome.output;
    EXPECT_EQ(outcome.kernel["races"], Json::array()) << kernel;
    EXPECT_FALSE(outcome.kernel["lines"].empty()) << kernel;
  }
}

TEST(Profile, NamesTheLineOfAnAccessOutOfBounds) {
  const Outcome outcome = run("too_far");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.output.find("status: cudaErrorIllegalAddress"), std::string::npos) << outcome.output;
  const std::string place = "profile_program.cu:" + std::to_string(line_of("too far"));
  EXPECT_NE(outcome.output.find("out-of-bounds read in kernel"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("block (8,0,0), thread (0,0,0): at " + place +
                                ": byte 0 past the end of the "
                                "allocation of 8192 bytes"),
            std::string::npos)
      << outcome.output;
}

TEST(Profile, PrintsEightyColumns) {
  for (const char* kernel :
       {"transpose_naive", "transpose_tiled", "reverse_race", "last_block_race", "too_far"}) {
    const Outcome outcome = run(kernel, "HOSTCUDA_PROFILE=-");
    std::istringstream text(outcome.output);
    bool has_diagnosis = false;
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("hostcuda: ")) continue;  // a fault's report is one line
      EXPECT_LE(line.size(), 80u) << line;
      has_diagnosis =
          has_diagnosis || line.find("^ ") != std::string::npos || line.find("race on") != std::string::npos;
    }
    EXPECT_EQ(has_diagnosis, std::string_view(kernel) != "too_far") << outcome.output;
  }
}

TEST(Profile, ShowsTheRegistersThatNvccHasTold) {
  const std::string file = testing::TempDir() + "/registers_" + std::to_string(getpid());
  std::ofstream(file)
      << "ptxas info    : Compiling entry function '_ZN12_GLOBAL__N_115transpose_naiveEPKfPfi' for 'sm_80'\n"
         "ptxas info    : Function properties for _ZN12_GLOBAL__N_115transpose_naiveEPKfPfi\n"
         "    24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads\n"
         "ptxas info    : Used 12 registers, used 1 barriers, 368 bytes cmem[0]\n";
  const Outcome outcome = run("transpose_naive", "HOSTCUDA_PROFILE_REGISTERS=" + file);
  EXPECT_EQ(outcome.kernel["registers"], 12);
  EXPECT_EQ(outcome.kernel["spill_bytes"], 36);
  std::remove(file.c_str());
}

TEST(Profile, SaysWhereThereIsNothingToProfile) {
  const Outcome outcome = run("nothing");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.output.find("no kernel was launched"), std::string::npos) << outcome.output;
}

TEST(Profile, RefusesAProgramWithoutCallbacks) {
  const auto ran = lockstep::apps::run_program({PLAIN_PROGRAM, "none"}, {"HOSTCUDA_PROFILE=-"});
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_NE((ran.out + ran.error).find("compile them with -O1 -g -fsanitize=thread"), std::string::npos)
      << ran.out << ran.error;
}

}  // namespace
