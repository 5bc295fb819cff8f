// How long a launch takes on a GPU, from what its threads do: each term is a bound that holds whatever else
// the kernel does, and the largest is the forecast. A pure function of counts and figures.
#pragma once

#include <string>

#include "hostcuda/src/forecast/gpu.h"
#include "hostcuda/src/runtime/tally.h"

namespace hostcuda::forecast {

// Of one launch.
struct KernelCounts {
  double blocks = 1;
  double warps_per_block = 1;
  double shared_bytes = 0;  // of a block
  double registers = 0;     // of a thread; 0: nobody has told
  // Of all blocks.
  double global_requests = 0, global_sectors = 0;
  double shared_requests = 0, shared_passes = 0;
  double shared_replays = 0;                 // passes beyond those without a conflict
  double narrow_requests = 0;                // in which not all threads of the warp take part
  double l2_bytes = 0;                       // what the L1 cannot keep back
  double read_bytes = 0, written_bytes = 0;  // from and to DRAM at least, each sector once
  double partial_sectors = 0;                // stores to a part of a sector, beyond one for each sector
  double operations = 0;                     // floating point
  // One after the other in a thread of a block.
  double global_chain = 0, shared_chain = 0, barriers = 0;
};

enum class Bound { launch, dram, few_warps, l2, l1, shared, issue, operations, latency, library, link };
const char* text_of(Bound bound);

struct Estimate {
  double seconds = 0;
  Bound bound = Bound::launch;
};

// All terms, in seconds.
struct Terms {
  double dram = 0;       // bytes over the bandwidth
  double few_warps = 0;  // bytes over the bandwidth that so few bytes in flight can draw (Little's law)
  double l2 = 0;
  double l1 = 0;      // loads, stores and shared memory go through one unit
  double shared = 0;  // of these: shared memory's passes
  double issue = 0;   // instructions
  double operations = 0;
  double latency = 0;  // the chain of a thread, in as many rounds as blocks have to be run
};

Terms terms_of(const KernelCounts& kernel, const Gpu& gpu);
Estimate estimate(const KernelCounts& kernel, const Gpu& gpu);

// Blocks that a multiprocessor holds at once.
double resident_blocks(const KernelCounts& kernel, const Gpu& gpu);

// A library's product or convolution, a copy, a fill.
Estimate estimate(const Operation& operation, const Gpu& gpu);
// What a call takes of the host's time.
double host_seconds(const Operation& operation, const Gpu& gpu);
double event_seconds(const Gpu& gpu);

}  // namespace hostcuda::forecast
