#include "hostcuda/src/forecast/counts.h"

#include <algorithm>

namespace hostcuda::forecast {

using profile::InstructionCounts;
using profile::Kind;
using profile::Space;

KernelCounts counts_of(const profile::ShapeProfile& shape, double operations,
                       const profile::Registers& registers) {
  KernelCounts counts;
  counts.blocks = static_cast<double>(shape.blocks());
  const uint64_t warps = (shape.threads() + 31) / 32;
  counts.warps_per_block = static_cast<double>(warps);
  counts.shared_bytes = static_cast<double>(shape.shared_bytes + shape.static_shared_bytes);
  counts.registers = registers.count;
  counts.global_chain = static_cast<double>(shape.longest_global);
  counts.shared_chain = static_cast<double>(shape.longest_shared);
  counts.barriers = static_cast<double>(shape.barriers);
  if (shape.recorded_blocks == 0) return counts;

  const double scale = counts.blocks / static_cast<double>(shape.recorded_blocks);
  double loaded_words = 0, partial = 0, stored = 0;
  for (const InstructionCounts& one : shape.instructions) {
    const double requests = scale * static_cast<double>(one.requests);
    const double lanes = scale * static_cast<double>(one.lanes);
    if (one.kind == Kind::load) loaded_words += lanes * std::max(1.0, one.bytes / 4.0);
    counts.narrow_requests += scale * static_cast<double>(one.narrow);
    if (one.space == Space::shared) {
      counts.shared_requests += requests;
      counts.shared_passes += scale * static_cast<double>(one.passes);
      counts.shared_replays += scale * static_cast<double>(one.passes - one.parts);
      continue;
    }
    const double sectors = scale * static_cast<double>(one.sectors);
    counts.global_requests += requests;
    counts.global_sectors += sectors;
    if (one.kind != Kind::load) stored += 32 * sectors;
    if (one.kind == Kind::store && lanes * one.bytes < 0.9 * 32 * sectors) partial += sectors;
  }
  const double launches = static_cast<double>(std::max<uint64_t>(1, shape.traffic_launches));
  counts.read_bytes = shape.traffic.read_once / launches;
  counts.written_bytes = shape.traffic.written_once / launches;
  counts.l2_bytes = shape.traffic.read_by_blocks / launches + stored;
  counts.partial_sectors = std::max(0.0, partial - counts.written_bytes / 32);
  counts.operations = operations > 0 ? operations : 2 * loaded_words;
  return counts;
}

}  // namespace hostcuda::forecast
