// Names kernels by their address and writes the report lines.
#include "report.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "symbols.h"

namespace hostcuda {
namespace {

// Without the result type in front (template functions have one) and the parameters behind.
std::string strip_signature(const std::string& demangled) {
  size_t end = demangled.size();
  if (!demangled.empty() && demangled.back() == ')') {
    int depth = 0;
    while (end > 0) {
      const char c = demangled[--end];
      if (c == ')') ++depth;
      if (c == '(' && --depth == 0) break;
    }
  }
  const std::string name = demangled.substr(0, end);
  return name.starts_with("void ") ? name.substr(5) : name;
}

std::string file_name(const char* path) {
  const std::string text = path == nullptr ? "?" : path;
  return text.substr(text.rfind('/') + 1);
}

}  // namespace

uint64_t schedule_seed() {
  static const uint64_t seed = [] {
    const char* text = std::getenv("HOSTCUDA_SEED");
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  }();
  return seed;
}

std::string kernel_name(const void* kernel) {
  Dl_info info{};
  const bool exported = dladdr(kernel, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == kernel;
  const std::string name = exported ? info.dli_sname : symbol_at(kernel);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? strip_signature(demangled.get()) : name;
}

std::string format_index(const uint3& index) {
  char text[48];
  std::snprintf(text, sizeof text, "(%u,%u,%u)", index.x, index.y, index.z);
  return text;
}

std::string format_site(const std::source_location& site) {
  return file_name(site.file_name()) + ":" + std::to_string(site.line());
}

void report_fault(const std::string& fault, const KernelLaunch& launch, const uint3& block,
                  const uint3* thread, const std::string& details) {
  const std::string name = kernel_name(launch.kernel);
  std::string line = "hostcuda: " + fault + " in kernel";
  if (!name.empty()) line += " " + name + ",";
  line += " launched at " + file_name(launch.site.file) + ":" + std::to_string(launch.site.line);
  line += ", block " + format_index(block);
  if (thread != nullptr) line += ", thread " + format_index(*thread);
  if (!details.empty()) line += ": " + details;
  if (checked_mode()) line += " [HOSTCUDA_SEED=" + std::to_string(schedule_seed()) + "]";
  line += "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace hostcuda
