// Names kernels by their address and writes the report lines.
#include "hostcuda/src/runtime/report.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <system_error>

#include "hostcuda/src/runtime/symbols.h"

namespace hostcuda {
namespace {

constexpr size_t kCodes = 1024;                                      // CUDA's error codes are below
std::array<std::atomic<const std::string*>, kCodes> explanations{};  // each kept as long as the process

}  // namespace

std::string file_name(const char* path) {
  const std::string text = path == nullptr ? "?" : path;
  return text.substr(text.rfind('/') + 1);
}

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

void explain(cudaError_t code, const std::string& text) {
  auto first = std::make_unique<const std::string>(text);
  const std::string* none = nullptr;
  if (explanations[static_cast<size_t>(code) % kCodes].compare_exchange_strong(none, first.get()))
    (void)first.release();  // NOLINT(bugprone-unused-return-value): the table has it now, for good
}

const char* explanation_of(cudaError_t code) {
  const std::string* const text = explanations[static_cast<size_t>(code) % kCodes];
  return text == nullptr ? nullptr : text->c_str();
}

cudaError_t error_of_exception(const char* operation) {
  const auto shortage = [&](const std::string& what, const char* limits) {
    explain(cudaErrorOperatingSystem, std::string(operation) + ": the system gives this process no more " +
                                          what + ": allow it more (" + limits +
                                          "), or use a smaller HOSTCUDA_THREADS");
    return cudaErrorOperatingSystem;
  };
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return shortage("memory", "ulimit -v");
  } catch (const std::system_error& error) {  // of std::thread
    return shortage(std::string("threads (") + error.code().message() + ")", "ulimit -v, ulimit -u");
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "hostcuda: %s failed: %s\n", operation, exception.what());
  } catch (...) {
    std::fprintf(stderr, "hostcuda: %s failed: an exception that is no std::exception\n", operation);
  }
  return cudaErrorLaunchFailure;
}

uint64_t schedule_seed() {
  static const uint64_t seed = [] {
    const char* text = std::getenv("HOSTCUDA_SEED");
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  }();
  return seed;
}

std::string readable_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? strip_signature(demangled.get()) : mangled;
}

std::string kernel_name(const KernelLaunch& launch) {
  if (launch.name != nullptr) return launch.name;
  const void* const kernel = launch.kernel;
  Dl_info info{};
  const bool exported = dladdr(kernel, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == kernel;
  return readable_name(exported ? info.dli_sname : symbol_at(kernel));
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
  const std::string name = kernel_name(launch);
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
