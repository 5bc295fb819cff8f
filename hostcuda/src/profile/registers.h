// What nvcc says of kernels, where it is at hand: registers, and what did not fit into them.
#pragma once

#include <map>
#include <string>

namespace hostcuda::profile {

struct Registers {
  int count = 0;        // of a thread
  int spill_bytes = 0;  // stored and loaded by a thread because registers did not suffice
};

// By the kernel's name without namespaces. `file` has what nvcc writes with -Xptxas -v; of several
// architectures the last counts.
std::map<std::string, Registers> read_registers(const std::string& file);

}  // namespace hostcuda::profile
