#include "hostcuda/src/forecast/model.h"

#include <algorithm>
#include <cmath>

namespace hostcuda::forecast {

namespace {

constexpr double kSectorBytes = 32;

// Of DRAM's bandwidth on the data sheet, what a copy reaches: 1870 of 2039 GB/s on an A100, 88 to 93 % on
// others.
constexpr double kDramReached = 0.92;
// Sectors that a multiprocessor's L1 serves in a clock. From the first two steps of the published ladder of
// matrix products: 33 sectors a step of the loop take 30 clocks, 5 take 4.7.
constexpr double kSectorsAClock = 1;
// Loads of a thread that are under way at once: what nvcc's unrolling by 4 gives a plain loop.
constexpr double kOverlap = 4;
// Beside an access itself: the address, and its part of a loop's count, test and branch.
constexpr double kInstructionsARequest = 2;
// A barrier's own, with the count, test and branch of the loop around it.
constexpr double kInstructionsABarrier = 4;
// An access that part of a warp makes: the test, the branch and the join beside it.
constexpr double kInstructionsANarrowRequest = 4;
// Of the instructions that could be started, what is: the best published product that is not a library's
// reaches 56 % of an RTX A6000's peak, the library 60 %.
constexpr double kIssued = 0.6;
// An L1's latency, in that of shared memory: 41 against 29 clocks on an H100 (arXiv 2402.13499).
constexpr double kL1OverShared = 1.4;
// Cost of a barrier for a block, in clocks.
constexpr double kBarrierClocks = 30;

// What a library reaches of the peak where the problem fills the GPU. Products: cuBLAS in float32 on an RTX
// A6000, 23.3 of 38.7; in bfloat16 on an H100, 716 of 989. TF32 is taken like bfloat16. Convolutions have no
// published figures by layer and pass here: three quarters of a product's.
double reached(const Operation& operation) {
  const double product = operation.arithmetics == Arithmetics::fp32 ? 0.6 : 0.7;
  return operation.kind == Operation::Kind::convolution ? 0.75 * product : product;
}

// How much of the GPU a product fills with the tile that suits it best. A smaller tile fills more of it, and
// loads more for each product; a deep product is cut into pieces, too.
double filled(const Operation& operation, const Gpu& gpu) {
  struct Tile {
    double size, speed;
  };
  constexpr double kPiece = 256;
  double best = 0;
  for (const Tile tile : {Tile{128, 1}, Tile{64, 0.6}, Tile{32, 0.35}}) {
    const double down = std::ceil(operation.rows / tile.size),
                 across = std::ceil(operation.columns / tile.size);
    const double tiles = down * across * operation.count;
    const double pieces = std::clamp(std::floor(gpu.multiprocessors / tiles), 1.0,
                                     std::max(1.0, std::floor(operation.depth / kPiece)));
    const double parts = tiles * pieces;
    const double busy = parts / (std::ceil(parts / gpu.multiprocessors) * gpu.multiprocessors);
    const double used = operation.rows * operation.columns / (down * across * tile.size * tile.size);
    best = std::max(best, tile.speed * busy * used);
  }
  return best;
}

double peak(Arithmetics arithmetics, const Gpu& gpu) {
  return 1e12 * (arithmetics == Arithmetics::fp32   ? gpu.fp32_tflops
                 : arithmetics == Arithmetics::tf32 ? gpu.tf32_tflops
                                                    : gpu.bf16_tflops);
}

double l2_or_dram(double bytes, const Gpu& gpu) {
  // What the kernel before has written is still in the L2 if it fits there with what is read.
  return bytes <= gpu.l2_mb * 1e6 / 2 ? bytes / gpu.l2() : bytes / (kDramReached * gpu.dram());
}

}  // namespace

const char* text_of(Bound bound) {
  switch (bound) {
    case Bound::launch:
      return "launch";
    case Bound::dram:
      return "DRAM";
    case Bound::few_warps:
      return "few warps";
    case Bound::l2:
      return "L2";
    case Bound::l1:
      return "L1 sectors";
    case Bound::shared:
      return "shared mem";
    case Bound::issue:
      return "instructions";
    case Bound::operations:
      return "arithmetic";
    case Bound::latency:
      return "latency";
    case Bound::library:
      return "library";
    case Bound::link:
      return "link";
  }
  return "";
}

double resident_blocks(const KernelCounts& kernel, const Gpu& gpu) {
  double blocks = std::min(gpu.blocks_per_multiprocessor,
                           std::floor(gpu.warps_per_multiprocessor / kernel.warps_per_block));
  if (kernel.shared_bytes > 0)
    blocks = std::min(blocks, std::floor(gpu.shared_kilobytes * 1024 / kernel.shared_bytes));
  if (kernel.registers > 0)
    blocks = std::min(blocks, std::floor(gpu.registers / (kernel.registers * 32 * kernel.warps_per_block)));
  return std::max(1.0, blocks);
}

Terms terms_of(const KernelCounts& kernel, const Gpu& gpu) {
  Terms terms;
  const double clock = gpu.clock();
  const double resident = resident_blocks(kernel, gpu);
  // The busiest multiprocessor runs so many blocks, so many times its share of the launch.
  const double blocks_each = std::ceil(kernel.blocks / gpu.multiprocessors);
  const double share = blocks_each / kernel.blocks;

  const bool in_l2 = kernel.read_bytes + kernel.written_bytes <= gpu.l2_mb * 1e6 / 2;
  const double partial = in_l2 ? 0 : kernel.partial_sectors * kSectorBytes * gpu.partial_write;
  const double moved = kernel.read_bytes + kernel.written_bytes + partial;
  terms.dram = l2_or_dram(moved, gpu);
  terms.l2 = kernel.l2_bytes / gpu.l2();

  const double on_gpu = std::min(kernel.blocks, resident * gpu.multiprocessors) * kernel.warps_per_block;
  const double latency = (in_l2 ? gpu.l2_latency_clocks : gpu.dram_latency_clocks) / clock;
  // What a load waits for in the mean: most of a loop's find in the L1 what the one before has brought.
  const auto of_all = [&](double bytes) {
    return std::clamp(bytes / std::max(1.0, kSectorBytes * kernel.global_sectors), 0.0, 1.0);
  };
  const double l1_clocks = kL1OverShared * gpu.shared_latency_clocks;
  const double mean_latency =
      (l1_clocks + of_all(kernel.l2_bytes) * (gpu.l2_latency_clocks - l1_clocks) +
       (in_l2 ? 0 : of_all(moved)) * (gpu.dram_latency_clocks - gpu.l2_latency_clocks)) /
      clock;
  if (kernel.global_requests > 0) {
    const double bytes_a_request = kSectorBytes * kernel.global_sectors / kernel.global_requests;
    const double overlap = std::clamp(kernel.global_chain, 1.0, kOverlap);
    terms.few_warps = moved * latency / (on_gpu * overlap * bytes_a_request);
  }

  terms.shared = kernel.shared_passes * share / clock;
  terms.l1 = terms.shared + kernel.global_sectors / kSectorsAClock * share / clock;
  const double instructions =
      kernel.operations / 64 + kernel.shared_requests + kernel.shared_replays +
      kernel.narrow_requests * kInstructionsANarrowRequest +
      kernel.global_requests * (1 + kInstructionsARequest) +
      kernel.barriers * kernel.blocks * kernel.warps_per_block * kInstructionsABarrier;
  terms.issue = instructions * share / (gpu.issues_per_clock * kIssued * clock);
  terms.operations = kernel.operations * share * gpu.multiprocessors / (kIssued * gpu.fp32_tflops * 1e12);

  const double rounds = std::max(1.0, kernel.blocks / (resident * gpu.multiprocessors));
  const auto waits = [](double chain) { return chain <= kOverlap ? std::min(chain, 1.0) : chain / kOverlap; };
  terms.latency =
      rounds *
      (waits(kernel.global_chain) * mean_latency +
       (waits(kernel.shared_chain) * gpu.shared_latency_clocks + kernel.barriers * kBarrierClocks) / clock);
  return terms;
}

Estimate estimate(const KernelCounts& kernel, const Gpu& gpu) {
  const Terms terms = terms_of(kernel, gpu);
  const Estimate bounds[] = {
      {terms.dram, Bound::dram},       {terms.few_warps, Bound::few_warps},
      {terms.l2, Bound::l2},           {terms.l1, terms.shared > terms.l1 / 2 ? Bound::shared : Bound::l1},
      {terms.issue, Bound::issue},     {terms.operations, Bound::operations},
      {terms.latency, Bound::latency},
  };
  Estimate longest =
      *std::max_element(std::begin(bounds), std::end(bounds),
                        [](const Estimate& a, const Estimate& b) { return a.seconds < b.seconds; });
  const double launch = gpu.launch_device_us * 1e-6;
  if (launch > longest.seconds) longest.bound = Bound::launch;
  longest.seconds += launch;
  return longest;
}

Estimate estimate(const Operation& operation, const Gpu& gpu) {
  const double launch = gpu.launch_device_us * 1e-6;
  switch (operation.kind) {
    case Operation::Kind::product:
    case Operation::Kind::convolution: {
      const double operations = 2 * operation.rows * operation.columns * operation.depth * operation.count;
      const double arithmetic =
          operations / (peak(operation.arithmetics, gpu) * reached(operation) * filled(operation, gpu));
      const double memory = l2_or_dram(operation.bytes, gpu);
      const double work = std::max(arithmetic, memory);
      return {launch + work, work < launch          ? Bound::launch
                             : arithmetic >= memory ? Bound::operations
                                                    : Bound::dram};
    }
    case Operation::Kind::fill:
    case Operation::Kind::copy: {
      const bool fill = operation.kind == Operation::Kind::fill;
      double work = 0;
      if (fill || operation.link == Link::device)
        work = l2_or_dram((fill ? 1 : 2) * operation.bytes, gpu);
      else
        work = operation.bytes / (1e9 * (operation.link == Link::peer     ? gpu.peer_gb_s
                                         : operation.link == Link::pinned ? gpu.pinned_gb_s
                                                                          : gpu.pageable_gb_s));
      const Bound bound = fill || operation.link == Link::device ? Bound::dram : Bound::link;
      return {launch + work, work < launch ? Bound::launch : bound};
    }
    default:
      return {operation.kind == Operation::Kind::kernel ? launch : 0, Bound::launch};
  }
}

// In launches: a library looks for its kernel first, a copy with pageable memory goes through a stage.
double host_seconds(const Operation& operation, const Gpu& gpu) {
  const double launch = gpu.launch_host_us * 1e-6;
  switch (operation.kind) {
    case Operation::Kind::product:
      return 2 * launch;
    case Operation::Kind::convolution:
      return 4 * launch;
    case Operation::Kind::copy: {
      const double copies =
          operation.link == Link::pageable ? operation.bytes / (gpu.pageable_gb_s * 1e9) : 0;
      return 2 * launch + copies;
    }
    case Operation::Kind::other:
      return 4 * launch;  // a graph
    default:
      return launch;
  }
}

double event_seconds(const Gpu& gpu) {
  return 0.3 * gpu.launch_host_us * 1e-6;
}

}  // namespace hostcuda::forecast
