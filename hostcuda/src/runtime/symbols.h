// The executable's own symbol table, which names what it does not export (kernels in an unnamed namespace)
// and where the static __shared__ variables lie. Empty where the executable is stripped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hostcuda {

// The mangled name of the function that starts at `address`; empty if there is none.
std::string symbol_at(const void* address);

// A piece of memory.
struct Range {
  std::byte* begin = nullptr;
  size_t bytes = 0;
  std::string name = {};  // of the variable, mangled
  bool contains(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - begin) < bytes;
  }
};

// The mangled name of the function that `address` lies in; empty if there is none.
std::string symbol_around(const void* address);

// What is added to the addresses in the executable's file.
uintptr_t load_address();

// The executable's thread-local storage, as the calling thread has it, and its writable variables.
Range thread_storage();
Range writable_variables();
// The mangled name of the variable that `address`, in writable_variables(), lies in; empty if there is none.
std::string variable_around(const void* address);

// The static __shared__ variables of all kernels, as the calling thread has them.
std::vector<Range> static_shared_variables();

}  // namespace hostcuda
