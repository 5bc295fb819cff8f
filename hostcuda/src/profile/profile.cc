#include "hostcuda/src/profile/profile.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "hostcuda/src/runtime/config.h"

namespace hostcuda::profile {

namespace {

// At exit, so the status can only be changed by leaving at once.
[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "hostcuda: %s\n", text.c_str());
  std::fflush(nullptr);
  _exit(1);
}

void write_profile() {
  if (!config().problem.empty()) return;  // every CUDA call has failed with it
  const Summary summary = summarise(results(), read_registers(config().profile_registers));
  if (summary.kernels.empty()) fail("there is nothing to profile (HOSTCUDA_PROFILE): no kernel was launched");
  if (config().profile_table) {
    print_table(summary, stderr);
    print_listing(summary, stderr);
  }
  const std::string& path = config().profile;
  if (path == "-") return;
  std::FILE* const file = std::fopen(path.c_str(), "w");
  const std::string text = to_json(summary);
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!written || std::fclose(file) != 0)
    fail("cannot write the profile to '" + path + "' (HOSTCUDA_PROFILE): " + std::strerror(errno));
}

}  // namespace

void write_profile_at_exit() {
  std::atexit(write_profile);
}

}  // namespace hostcuda::profile
