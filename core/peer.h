// Copies between devices. Before the first one between two physical devices, peer access is enabled both ways
// and tested with a data pattern: some machines report access and then deliver zeros (an IOMMU in the way).
// Where there is no access, or the pattern does not arrive, copies go through pinned host memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/device.h"

namespace lockstep {

enum class PeerRoute {
  same_device,  // two logical devices on one physical: an ordinary copy
  direct,       // cudaMemcpyPeerAsync with peer access
  host,         // through host memory
};

// How bytes travel from one device to another. Probed at the first call for a pair of physical devices, which
// synchronises both; afterwards a look-up.
PeerRoute peer_route(const Device& source, const Device& destination);

// Enqueues a copy on `stream`, which must belong to one of the two physical devices. The caller orders it
// against the work on both ends.
void peer_copy(void* destination, const Device& destination_device, const void* source,
               const Device& source_device, size_t bytes, cudaStream_t stream);

// Copies on a stream may need memory of their own on the host, which a Stream frees at its end. Afterwards
// the handle may be that of another stream, on another device.
void free_peer_staging(cudaStream_t stream) noexcept;

// What people should know, a line for every pair that does not copy directly; empty where all do.
std::vector<std::string> peer_notes(const std::vector<Device>& devices);

}  // namespace lockstep
