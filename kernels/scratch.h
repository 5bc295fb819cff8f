// What a sum that many blocks share needs beside its operands.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

inline constexpr int kTickets = 1024;

struct SumScratch {
  // Device memory of as many bytes as the kernel's own function says, aligned to 16; its contents do not
  // matter.
  void* workspace;
  // kTickets counters in device memory, zeros before a launch and after it. Two launches that may run at the
  // same time need two sets, so each stream has its own.
  unsigned* tickets;
};

}  // namespace lockstep::kernels
