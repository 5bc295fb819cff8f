// What a program cannot see through the CUDA API: which way copies between devices went, and
// how often something was launched.
#pragma once

#include <cstdint>

namespace hostcuda {

struct PeerCopies {
  uint64_t direct = 0;  // from one device's memory to the other's, access being enabled
  uint64_t staged = 0;  // through host memory
};

// Peer copies carried out so far, in this process.
PeerCopies peer_copies();

// What host threads have enqueued so far, in this process; a replayed graph counts once, when it is recorded.
struct Launches {
  uint64_t kernels = 0;
  uint64_t library_calls = 0;  // cuBLAS and cuDNN
  uint64_t copies = 0;
  uint64_t events = 0;  // recorded, or waited for by a stream
  uint64_t all() const { return kernels + library_calls; }
};

Launches launches();

}  // namespace hostcuda
