#include "kernels/check.h"

#include <string_view>

namespace lockstep::detail {
namespace {

// Within the project: the rest of a path is of the machine that it was built on, and says nothing to a
// reader. It is what stands before this file's own place.
std::string_view within_project(std::string_view file) {
  constexpr std::string_view kThis = "kernels/check.cc", kPath = __FILE__;
  const std::string_view root = kPath.ends_with(kThis) ? kPath.substr(0, kPath.size() - kThis.size()) : "";
  return file.starts_with(root) ? file.substr(root.size()) : file.substr(file.rfind('/') + 1);
}

// "cudaMalloc(&p, n) failed: out of memory (cudaErrorMemoryAllocation), device 0, core/pool.cu:41"
[[noreturn]] void throw_failure(const char* statement, const std::string& reason, const char* file,
                                int line) {
  int device = -1;
  const bool known = cudaGetDevice(&device) == cudaSuccess;
  throw Error(std::string(statement) + " failed: " + reason + ", device " +
              (known ? std::to_string(device) : std::string("unknown")) + ", " +
              std::string(within_project(file)) + ":" + std::to_string(line));
}

}  // namespace

void throw_cuda(cudaError_t status, const char* statement, const char* file, int line) {
  throw_failure(statement, std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ")",
                file, line);
}

void throw_cublas(cublasStatus_t status, const char* statement, const char* file, int line) {
  throw_failure(statement, cublasGetStatusString(status), file, line);
}

void throw_cudnn(cudnnStatus_t status, const char* statement, const char* file, int line) {
  throw_failure(statement, cudnnGetErrorString(status), file, line);
}

}  // namespace lockstep::detail
