// The executable's own symbol table, which names what it does not export (kernels in an unnamed namespace)
// and where the static __shared__ variables lie. Empty where the executable is stripped.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hostcuda {

// The mangled name of the function that starts at `address`; empty if there is none.
std::string symbol_at(const void* address);

// A piece of the calling thread's storage.
struct Range {
  std::byte* begin;
  size_t bytes;
};

// The static __shared__ variables of all kernels, as the calling thread has them.
std::vector<Range> static_shared_variables();

}  // namespace hostcuda
