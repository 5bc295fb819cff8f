// What hostcuda tells about faulty programs: each planted fault of fault_program.cu runs in a process of its
// own (a kernel's faults are sticky), and its exit code and report are compared. Programs without the fault
// must stay silent.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <set>
#include <string>

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

struct Outcome {
  int exit_code;  // 128 + signal where one ended it
  std::string output;
};

Outcome run(const std::string& fault, const std::string& environment) {
  // setarch: the thread sanitizer of g++ 12 cannot start where addresses are too random.
  const std::string command = "ulimit -c 0; env " + environment + (kThreadSanitizer ? " setarch -R " : " ") +
                              FAULT_PROGRAM + " " + fault + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  Outcome outcome;
  char buffer[4096];
  while (const size_t bytes = std::fread(buffer, 1, sizeof buffer, pipe))
    outcome.output.append(buffer, bytes);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

class Checked : public testing::Test {
 protected:
  void SetUp() override {
    if (kThreadSanitizer) GTEST_SKIP() << "checked mode is tested in the other builds";
  }

  // The fault is reported in one line that holds `parts`, and the program sees `error`, again and again.
  static void expect_report(const std::string& fault, const std::string& error,
                            std::initializer_list<const char*> parts) {
    SCOPED_TRACE(fault);
    const Outcome outcome = run(fault, "HOSTCUDA_CHECK=1 HOSTCUDA_DEVICES=2");
    SCOPED_TRACE("output:\n" + outcome.output);
    EXPECT_EQ(outcome.exit_code, 1);
    const size_t begin = outcome.output.find("hostcuda: ");
    ASSERT_NE(begin, std::string::npos) << "no report";
    const std::string line = outcome.output.substr(begin, outcome.output.find('\n', begin) - begin);
    for (const char* part : parts)
      EXPECT_NE(line.find(part), std::string::npos) << "the report lacks: " << part;
    EXPECT_NE(line.find("launched at fault_program.cu:"), std::string::npos);
    EXPECT_NE(line.find("[HOSTCUDA_SEED=0]"), std::string::npos);
    EXPECT_EQ(outcome.output.find("hostcuda: ", begin + 1), std::string::npos) << "more than one report";
    EXPECT_NE(outcome.output.find("status: " + error + ", then " + error), std::string::npos);
  }

  static void expect_silence(const std::string& program) {
    for (const int seed : {0, 1, 2, 3}) {
      const Outcome outcome =
          run(program, "HOSTCUDA_CHECK=1 HOSTCUDA_DEVICES=2 HOSTCUDA_SEED=" + std::to_string(seed));
      SCOPED_TRACE(program + ", seed " + std::to_string(seed) + ", output:\n" + outcome.output);
      EXPECT_EQ(outcome.exit_code, 0);
      EXPECT_EQ(outcome.output.find("hostcuda: "), std::string::npos);
      EXPECT_NE(outcome.output.find("status: cudaSuccess, then cudaSuccess"), std::string::npos);
    }
  }

  // The results of a program over the seeds.
  static std::set<std::string> results(const std::string& program) {
    std::set<std::string> all;
    for (const int seed : {0, 1, 2, 3}) {
      const std::string output =
          run(program, "HOSTCUDA_CHECK=1 HOSTCUDA_SEED=" + std::to_string(seed)).output;
      const size_t begin = output.find("result: ");
      all.insert(begin == std::string::npos ? output
                                            : output.substr(begin, output.find('\n', begin) - begin));
    }
    return all;
  }
};

using Strings = std::set<std::string>;

TEST_F(Checked, AMissingBarrierShowsAsNaN) {
  EXPECT_EQ(results("static_barrier"), Strings{"result: right"});
  EXPECT_EQ(results("dynamic_barrier"), Strings{"result: right"});
  EXPECT_EQ(results("static_barrier_missing"), Strings{"result: NaN"});
  EXPECT_EQ(results("dynamic_barrier_missing"), Strings{"result: NaN"});
}

TEST_F(Checked, UninitialisedMemoryIsNaN) {
  EXPECT_EQ(results("uninitialised_read"), Strings{"result: NaN"});
}

TEST_F(Checked, DivergentBarriersAreReported) {
  expect_report("divergent_barriers", "cudaErrorLaunchFailure",
                {"barrier divergence", "kernel", "divergent_barriers", "block (0,0,0)", "thread (64,0,0)",
                 "waits at fault_program.cu:"});
}

TEST_F(Checked, ABarrierAfterSomeThreadsHaveEndedIsAWarning) {
  const Outcome outcome = run("ended_before_barrier", "HOSTCUDA_CHECK=1");
  SCOPED_TRACE(outcome.output);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("hostcuda: warning: barrier after some threads have ended"),
            std::string::npos);
  EXPECT_NE(outcome.output.find("1 of 128 threads have ended"), std::string::npos);
}

TEST_F(Checked, WarpOperationsWithAbsentLanesAreReported) {
  expect_report("shuffle_without_upper_lanes", "cudaErrorLaunchTimeout",
                {"warp operation with absent lanes", "thread (0,0,0)", "thread (16,0,0) waits at"});
  expect_report("vote_without_upper_lanes", "cudaErrorLaunchTimeout", {"warp operation with absent lanes"});
  expect_report("shuffle_in_two_branches", "cudaErrorLaunchFailure",
                {"warp operation with absent lanes", "calls with mask 0xffffffff"});
}

TEST_F(Checked, AShuffleOutsideItsOwnMaskIsReported) {
  expect_report("shuffle_outside_own_mask", "cudaErrorLaunchFailure",
                {"lane outside its own mask", "thread (16,0,0)", "mask 0x0000ffff"});
}

TEST_F(Checked, AShuffleFromALaneThatHasEndedIsReported) {
  const Outcome outcome = run("shuffle_from_ended_lane", "HOSTCUDA_CHECK=1");
  SCOPED_TRACE(outcome.output);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.output.find("hostcuda: warning: warp operation that names lanes which have ended"),
            std::string::npos);
  EXPECT_NE(outcome.output.find("hostcuda: shuffle from an absent lane"), std::string::npos);
  EXPECT_NE(outcome.output.find("thread (16,0,0): reads lane 20"), std::string::npos);
}

TEST_F(Checked, OutOfBoundsAccessIsReported) {
  expect_report("write_behind", "cudaErrorIllegalAddress",
                {"out-of-bounds write", "write_at", "block (1,0,0)", "thread (3,0,0)",
                 "0 bytes past the end of", "256 bytes", "device 0"});
  expect_report("write_before", "cudaErrorIllegalAddress",
                {"out-of-bounds write", "wrote 4 bytes before the allocation of 256 bytes"});
  expect_report("read_behind", "cudaErrorIllegalAddress",
                {"out-of-bounds read", "read_at", "thread (3,0,0)"});
  expect_report("write_far", "cudaErrorIllegalAddress", {"invalid address", "thread (3,0,0)"});
  expect_report("null_pointer", "cudaErrorIllegalAddress", {"null pointer", "thread (3,0,0)"});
  expect_silence("write_inside");
}

TEST_F(Checked, AnAllocationOfAnySizeEndsWhereItsLastByteDoes) {
  expect_report("write_behind_61", "cudaErrorIllegalAddress",
                {"out-of-bounds write", "write_at", "block (1,0,0)", "thread (3,0,0)",
                 "0 bytes past the end of the allocation of 244 bytes"});
}

TEST_F(Checked, WhatIsReadBeforeAnAllocationIsNaN) {
  EXPECT_EQ(results("read_before"), Strings{"result: NaN"});
}

TEST_F(Checked, ATensorEndsWhereItsLastElementDoes) {
  for (const int elements : {1, 7, 10, 64, 100, 1000})
    for (const int beyond : {1, 2, 64})
      for (const std::string access : {"write", "read"}) {
        const std::string place = std::to_string(4 * (beyond - 1)) +
                                  " bytes past the end of the allocation of " + std::to_string(4 * elements) +
                                  " bytes";
        const std::string name = access + "_at";
        expect_report("tensor_of_" + std::to_string(elements) + "_" + access + "_at_" +
                          std::to_string(elements + beyond - 1),
                      "cudaErrorIllegalAddress",
                      {"out-of-bounds", access.c_str(), name.c_str(), "block (1,0,0)", "thread (3,0,0)",
                       place.c_str()});
      }
  expect_silence("tensor_of_10_write_at_9");
  expect_silence("tensor_of_10_read_at_9");
}

TEST_F(Checked, RowsThatAKernelReachesBeyondAreReported) {
  expect_report("tensor_rows_without_a_bound", "cudaErrorIllegalAddress",
                {"out-of-bounds", "centre_rows_without_a_bound", "block (3,0,0)", "thread (127,0,0)",
                 "108 bytes past the end of the allocation of 1600 bytes"});
}

TEST_F(Checked, ADeadTensorsMemoryIsNobodyElses) {
  for (const std::string access : {"write", "read"})
    expect_report("dead_tensor_" + access, "cudaErrorIllegalAddress",
                  {"use after free", access.c_str(), "block (1,0,0)", "thread (3,0,0)",
                   "byte 28 of the freed allocation of 256 bytes"});
  expect_silence("tensor_used_before_its_death");
}

TEST_F(Checked, AWritePastDynamicSharedMemoryIsReported) {
  expect_report("write_behind_shared", "cudaErrorIllegalAddress",
                {"out-of-bounds write", "write_shared_at", "past the end of dynamic shared memory"});
  expect_silence("write_inside_shared");
}

TEST_F(Checked, UseAfterFreeIsReported) {
  expect_report("use_after_free", "cudaErrorIllegalAddress",
                {"use after free (write)", "byte 28 of the freed allocation of 256 bytes", "thread (3,0,0)"});
}

TEST_F(Checked, AnotherDevicesMemoryNeedsPeerAccess) {
  expect_report("foreign_write", "cudaErrorIllegalAddress",
                {"write of another device's memory without peer access", "on device 1", "thread (3,0,0)"});
  expect_silence("foreign_write_enabled");
}

TEST_F(Checked, TheHostTouchingDeviceMemoryIsReportedAndStopsTheProgram) {
  const Outcome outcome = run("host_write", "HOSTCUDA_CHECK=1");
  SCOPED_TRACE(outcome.output);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("hostcuda: write of device memory by the host outside of a kernel"),
            std::string::npos);
  EXPECT_EQ(outcome.output.find("status:"), std::string::npos) << "the program went on";
}

TEST_F(Checked, AStackOverflowIsReported) {
  expect_report("stack_overflow", "cudaErrorIllegalAddress", {"stack overflow", "recurse_deeply"});
}

TEST_F(Checked, AnIntegerDivisionByZeroIsReported) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the undefined behaviour sanitizer stops the program first";
#endif
  expect_report("division_by_zero", "cudaErrorLaunchFailure", {"integer division by zero", "divide"});
}

TEST_F(Checked, ProgramsWithoutAFaultStaySilent) {
  expect_silence("static_barrier");
  expect_silence("dynamic_barrier");
  expect_silence("wait");
}

class ThreadSanitizer : public testing::Test {
 protected:
  void SetUp() override {
    if (!kThreadSanitizer) GTEST_SKIP() << "needs the tsan build";
  }

  static void expect_race(const std::string& fault, bool race) {
    const Outcome outcome = run(fault, "TSAN_OPTIONS=exitcode=66");
    SCOPED_TRACE(fault + ", output:\n" + outcome.output);
    EXPECT_EQ(outcome.exit_code, race ? 66 : 0);
    EXPECT_EQ(outcome.output.find("WARNING: ThreadSanitizer: data race") != std::string::npos, race);
  }
};

TEST_F(ThreadSanitizer, AMissingBarrierIsARace) {
  expect_race("static_barrier", false);
  expect_race("dynamic_barrier", false);
  expect_race("static_barrier_missing", true);
  expect_race("dynamic_barrier_missing", true);
}

TEST_F(ThreadSanitizer, AMissingStreamWaitIsARace) {
  expect_race("wait", false);
  expect_race("wait_missing", true);
}

}  // namespace
