// What hostcuda tells about a faulty kernel: one line on stderr for each fault, with the kernel's name, where
// it was launched, the block and the thread, and in checked mode the seed that brings the same order again.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <source_location>
#include <string>

#include <hostcuda/launch.h>

namespace hostcuda {

// HOSTCUDA_SEED, 0 where it is not set.
uint64_t schedule_seed();

// The kernel's name with its template arguments; empty where nothing names it.
std::string kernel_name(const KernelLaunch& launch);

// A function's name without the result type in front (template functions have one) and the parameters behind.
std::string strip_signature(const std::string& demangled);
// The same of a mangled name, of a variable too.
std::string readable_name(const std::string& mangled);
// The last part of a path.
std::string file_name(const char* path);

// "barrier divergence in kernel reduce<256>, launched at sum.cu:12, block (0,0,0), thread (3,0,0):
// <details>". `thread` may be null.
void report_fault(const std::string& fault, const KernelLaunch& launch, const uint3& block,
                  const uint3* thread, const std::string& details);

// From now on cudaGetErrorString gives this text for `code`, which says what happened and what to do in place
// of CUDA's general one; the first text of a code stays.
void explain(cudaError_t code, const std::string& text);
// Null where there is none.
const char* explanation_of(cudaError_t code);

// To be called while an exception that left `operation` is handled: the error that it becomes. What could not
// be had, memory or a thread, becomes the text of cudaErrorOperatingSystem; all else is printed.
cudaError_t error_of_exception(const char* operation);

std::string format_index(const uint3& index);
std::string format_site(const std::source_location& site);

}  // namespace hostcuda
