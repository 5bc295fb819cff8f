#include "hostcuda/src/runtime/config.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "hostcuda/src/runtime/gpus.h"

// Defined where device code has calls before its loads and stores: by src/profile/callbacks.cc, or, in the
// thread sanitizer's build, by its runtime.
extern "C" void __tsan_init() __attribute__((weak));

namespace hostcuda {
namespace {

// Reads a number in [least, most] from the environment; leaves `value` alone where the name is not set.
template <typename T>
void read_number(const char* name, T least, T most, const char* expected, T& value, std::string& problem) {
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  T number{};
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, number);
  if (error == std::errc() && stop == end && number >= least && number <= most)
    value = number;
  else if (problem.empty())
    problem = std::string(name) + " is '" + text + "': use " + expected;
}

// Reads a word that is one of `words`; gives its position.
int read_word(const char* name, std::initializer_list<std::string_view> words, const char* expected,
              std::string& problem) {
  const char* text = std::getenv(name);
  if (text == nullptr) return 0;
  const auto found = std::find(words.begin(), words.end(), text);
  if (found != words.end()) return static_cast<int>(found - words.begin());
  if (problem.empty()) problem = std::string(name) + " is '" + text + "': use " + expected;
  return 0;
}

// Libraries end the process by a signal where they get no memory within their own threads, so what is
// certainly too little is refused at the start. LeNet runs with half of this.
std::string problem_with_address_space() {
  constexpr rlim_t kLeastKilobytes = 512 << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur / 1024 >= kLeastKilobytes)
    return "";
  return "this process may have " + std::to_string(limit.rlim_cur / 1024) +
         " kB of address space: allow it " + std::to_string(kLeastKilobytes) + " or more (ulimit -v)";
}

// The GPU that a profile is compared to, by its place in kGpus.
int read_gpu(std::string& problem) {
  const char* const text = std::getenv("HOSTCUDA_PROFILE_GPU");
  if (text == nullptr) return 0;
  std::string known;
  for (size_t i = 0; i < kGpus.size(); ++i) {
    if (kGpus[i].key == text) return static_cast<int>(i);
    known += (i == 0 ? "" : i + 1 == kGpus.size() ? " or " : ", ") + std::string(kGpus[i].key);
  }
  if (problem.empty()) problem = "HOSTCUDA_PROFILE_GPU is '" + std::string(text) + "': use " + known;
  return 0;
}

// `variable` asks for what needs the kernels' accesses.
std::string problem_with_profile(const std::string& variable) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return variable + " is set in a sanitizer's build: profile a build without";
#endif
  if (__tsan_init != nullptr) return "";
  return variable +
         " is set, but the kernels have no calls that tell of their loads and stores: "
         "compile them with -O1 -g -fsanitize=thread -fno-tree-sra, or use ./lab " +
         (variable == "HOSTCUDA_FORECAST" ? "PROGRAM --forecast GPU" : "profile");
}

Config read_config() {
  Config config;
  std::string& problem = config.problem;
  problem = problem_with_address_space();
  read_number("HOSTCUDA_DEVICES", 1, 64, "a whole number from 1 to 64", config.devices, problem);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  config.threads = std::max(1, cores / config.devices);
  // More workers than cores only take turns, and each brings stacks and library threads of its own.
  constexpr int kMostForACore = 8;
  const int most = std::max(1, kMostForACore * cores / config.devices);
  const std::string expected = most == 1 ? "1" : "a whole number from 1 to " + std::to_string(most);
  const std::string why = expected + ", as " + std::to_string(config.devices) + " device" +
                          (config.devices == 1 ? "" : "s") + " share " + std::to_string(cores) + " core" +
                          (cores == 1 ? "" : "s");
  read_number("HOSTCUDA_THREADS", 1, most, why.c_str(), config.threads, problem);
  const size_t machine =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  config.memory = machine / static_cast<size_t>(config.devices);
  read_number<size_t>("HOSTCUDA_MEMORY", 1, SIZE_MAX / 64, "a number of bytes above 0", config.memory,
                      problem);
  read_number("HOSTCUDA_TIMEOUT", 0.001, 1e9, "a number of seconds above 0", config.timeout, problem);
  config.peer =
      static_cast<PeerAccess>(read_word("HOSTCUDA_PEER", {"1", "0", "broken"},
                                        "1, 0 (no peer access) or broken (copies deliver zeros)", problem));
  config.serial_callbacks = read_word("HOSTCUDA_SERIAL_CALLBACKS", {"0", "1"}, "0 or 1", problem) == 1;
  config.checked = read_word("HOSTCUDA_CHECK", {"0", "1"}, "0 or 1", problem) == 1;
  if (const char* file = std::getenv("HOSTCUDA_PROFILE"); file != nullptr) config.profile = file;
  if (!config.profile.empty() && problem.empty()) problem = problem_with_profile("HOSTCUDA_PROFILE");
  if (const char* gpu = std::getenv("HOSTCUDA_FORECAST"); gpu != nullptr) config.forecast = gpu;
  if (const char* file = std::getenv("HOSTCUDA_FORECAST_JSON"); file != nullptr) config.forecast_json = file;
  if (!config.forecast.empty() && problem.empty()) problem = problem_with_profile("HOSTCUDA_FORECAST");
  if (!config.forecast.empty() && problem.empty() && problem_with_forecast_gpu != nullptr)
    problem = problem_with_forecast_gpu(config.forecast);
  read_number<uint64_t>("HOSTCUDA_PROFILE_BLOCKS", 0, uint64_t{1} << 40, "a number of blocks, or 0 for all",
                        config.profile_blocks, problem);
  config.profile_gpu = read_gpu(problem);
  if (const char* file = std::getenv("HOSTCUDA_PROFILE_REGISTERS"); file != nullptr)
    config.profile_registers = file;
  config.profile_only = read_word("HOSTCUDA_PROFILE_ONLY", {"0", "1"}, "0 or 1", problem) == 1;
  config.profile_table =
      read_word("HOSTCUDA_PROFILE_TABLE", {"0", "1"}, "0 or 1", problem) == 1 || config.profile == "-";
#if defined(__SANITIZE_THREAD__)
  config.threads = 1;  // races are told from the order of streams, not from timing; see race.h
#endif
  if (config.checked) config.threads = 1;    // operations run one at a time
  if (config.records()) config.threads = 1;  // the blocks of a launch are looked at in their order
  return config;
}

}  // namespace

const Config& config() {
  static const Config* const config = new Config(read_config());
  return *config;
}

}  // namespace hostcuda
