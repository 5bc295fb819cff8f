// What a program cannot see through the CUDA API: which way copies between devices went.
#pragma once

#include <cstdint>

namespace hostcuda {

struct PeerCopies {
  uint64_t direct = 0;  // from one device's memory to the other's, access being enabled
  uint64_t staged = 0;  // through host memory
};

// Peer copies carried out so far, in this process.
PeerCopies peer_copies();

}  // namespace hostcuda
