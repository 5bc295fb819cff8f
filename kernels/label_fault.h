// What kernels leave on the device where they meet a label that is no class, since they cannot throw: the
// host reads it where it waits anyway (Device::check_labels).
#pragma once

#include <cstdint>

namespace lockstep::kernels {

// Device memory; all bits are set where nothing was wrong.
struct LabelFault {
  unsigned long long first;  // row << 32 | label, of the lowest row: the same in whatever order blocks run
  unsigned classes;          // of the launch that met it
};

}  // namespace lockstep::kernels
