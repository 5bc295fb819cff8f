#include "kernels/check.h"

namespace lockstep::detail {
namespace {

// "cudaMalloc(&p, n) failed: out of memory (cudaErrorMemoryAllocation), device 0, core/pool.cu:41"
[[noreturn]] void throw_failure(const char* statement, const std::string& reason, const char* file,
                                int line) {
  int device = -1;
  const bool known = cudaGetDevice(&device) == cudaSuccess;
  throw Error(std::string(statement) + " failed: " + reason + ", device " +
              (known ? std::to_string(device) : std::string("unknown")) + ", " + file + ":" +
              std::to_string(line));
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
