// Error and the check macros, used by every layer. A check names the statement that failed, its file and
// line, and the current device, and throws: nothing here prints or exits.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <stdexcept>
#include <string>

namespace lockstep {

// What a caller can act on: what was asked, what was found, what to do, in one line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Device memory ran out. Apps exit with its message; tests tell it from other errors by its type.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

namespace detail {
[[noreturn]] void throw_cuda(cudaError_t status, const char* statement, const char* file, int line);
[[noreturn]] void throw_cublas(cublasStatus_t status, const char* statement, const char* file, int line);
[[noreturn]] void throw_cudnn(cudnnStatus_t status, const char* statement, const char* file, int line);
}  // namespace detail

}  // namespace lockstep

// LOCKSTEP_CUDA(cudaMalloc(&p, n)) throws lockstep::Error unless the call returns cudaSuccess.
#define LOCKSTEP_CUDA(statement)                                                       \
  do {                                                                                 \
    const cudaError_t lockstep_status = (statement);                                   \
    if (lockstep_status != cudaSuccess)                                                \
      ::lockstep::detail::throw_cuda(lockstep_status, #statement, __FILE__, __LINE__); \
  } while (false)

#define LOCKSTEP_CUBLAS(statement)                                                       \
  do {                                                                                   \
    const cublasStatus_t lockstep_status = (statement);                                  \
    if (lockstep_status != CUBLAS_STATUS_SUCCESS)                                        \
      ::lockstep::detail::throw_cublas(lockstep_status, #statement, __FILE__, __LINE__); \
  } while (false)

#define LOCKSTEP_CUDNN(statement)                                                       \
  do {                                                                                  \
    const cudnnStatus_t lockstep_status = (statement);                                  \
    if (lockstep_status != CUDNN_STATUS_SUCCESS)                                        \
      ::lockstep::detail::throw_cudnn(lockstep_status, #statement, __FILE__, __LINE__); \
  } while (false)
