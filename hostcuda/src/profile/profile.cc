#include "hostcuda/src/profile/profile.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "hostcuda/src/runtime/config.h"

namespace hostcuda::profile {

namespace {

void write_profile() {
  const Summary summary = summarise(results());
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
    std::fprintf(stderr, "hostcuda: cannot write the profile to '%s' (HOSTCUDA_PROFILE): %s\n", path.c_str(),
                 std::strerror(errno));
}

}  // namespace

void write_profile_at_exit() {
  static const bool asked = [] {
    std::atexit(write_profile);
    return true;
  }();
  (void)asked;
}

}  // namespace hostcuda::profile
