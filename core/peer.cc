#include "core/peer.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "core/handle.h"
#include "core/stream.h"
#include "kernels/check.h"

namespace lockstep {
namespace {

struct Probe {
  PeerRoute route;
  std::string reason;  // why it is not direct
};

// True when `device` may access `peer` from now on.
bool enable_access(int device, int peer) {
  int possible = 0;
  LOCKSTEP_CUDA(cudaDeviceCanAccessPeer(&possible, device, peer));
  if (!possible) return false;
  const PhysicalDeviceGuard guard(device);
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaSuccess) return true;
  if (status != cudaErrorPeerAccessAlreadyEnabled && status != cudaErrorPeerAccessUnsupported &&
      status != cudaErrorTooManyPeers)
    detail::throw_cuda(status, "cudaDeviceEnablePeerAccess(peer, 0)", __FILE__, __LINE__);
  (void)cudaGetLastError();  // handled: the next check must not find it
  return status == cudaErrorPeerAccessAlreadyEnabled;
}

using DeviceMemory = Handle<void*, cudaFree>;

DeviceMemory device_memory(size_t bytes) {
  void* memory = nullptr;
  LOCKSTEP_CUDA(cudaMalloc(&memory, bytes));
  return DeviceMemory(memory);
}

// Copies a pattern from one device to the other and looks at what came out. No two words are the same, so
// that neither zeros nor a page in the wrong place can pass.
bool pattern_arrives(int source, int destination) {
  std::vector<uint32_t> sent(1 << 16), received(sent.size());
  for (uint32_t i = 0; i < sent.size(); ++i)
    sent[i] = (i + 1) * 2654435761u + static_cast<uint32_t>(source);  // an odd factor: a bijection
  const size_t bytes = sent.size() * sizeof(uint32_t);

  DeviceMemory from, to;
  {
    const PhysicalDeviceGuard guard(destination);
    to = device_memory(bytes);
    LOCKSTEP_CUDA(cudaMemset(to.get(), 0xa5, bytes));
    LOCKSTEP_CUDA(cudaDeviceSynchronize());
  }
  const PhysicalDeviceGuard guard(source);
  from = device_memory(bytes);
  LOCKSTEP_CUDA(cudaMemcpy(from.get(), sent.data(), bytes, cudaMemcpyHostToDevice));
  LOCKSTEP_CUDA(cudaDeviceSynchronize());
  const Stream stream;
  LOCKSTEP_CUDA(cudaMemcpyPeerAsync(to.get(), destination, from.get(), source, bytes, stream.get()));
  stream.synchronize();
  LOCKSTEP_CUDA(cudaMemcpy(received.data(), to.get(), bytes, cudaMemcpyDeviceToHost));
  return sent == received;
}

Probe probe(int a, int b) {
  if (a == b) return {PeerRoute::same_device, ""};
  const bool both = enable_access(a, b) && enable_access(b, a);
  if (!both) return {PeerRoute::host, "there is no peer access"};
  for (const auto& [source, destination] : {std::pair(a, b), std::pair(b, a)})
    if (!pattern_arrives(source, destination))
      return {PeerRoute::host,
              fmt::format("peer access is offered, but a test pattern did not arrive from {} to {} (an IOMMU "
                          "is the usual reason)",
                          source, destination)};
  return {PeerRoute::direct, ""};
}

const Probe& probed(const Device& source, const Device& destination) {
  static auto& known = *new std::map<std::pair<int, int>, Probe>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::pair<int, int> pair = std::minmax({source.physical(), destination.physical()});
  const auto found = known.find(pair);
  return (found != known.end() ? found : known.emplace(pair, probe(pair.first, pair.second)).first)->second;
}

template <typename T>
T on(int physical) {
  const PhysicalDeviceGuard guard(physical);
  return T();
}

constexpr size_t kHalf = size_t{1} << 20;

// Two halves of pinned memory: while one is written to the destination, the next piece is read from the
// source into the other. It belongs to one stream and one direction, whose copies follow each other, so
// nothing is left to order from one copy to the next, and a captured graph can go on using it.
class Staging {
 public:
  Staging(int source, int destination, int stream_device)
      : stream_is_source_(stream_device == source),
        begin_(on<Event>(stream_device)),
        end_(on<Event>(stream_is_source_ ? destination : source)),
        other_(on<Stream>(stream_is_source_ ? destination : source)) {
    for (Half& half : halves_) {
      void* memory = nullptr;
      LOCKSTEP_CUDA(cudaHostAlloc(&memory, kHalf, cudaHostAllocPortable));
      half.memory = Handle<void*, cudaFreeHost>(memory);
      half.filled = on<Event>(source);
      half.emptied = on<Event>(destination);
    }
  }

  void copy(std::byte* destination, const std::byte* source, size_t bytes, cudaStream_t stream) {
    const cudaStream_t reader = stream_is_source_ ? stream : other_.get();
    const cudaStream_t writer = stream_is_source_ ? other_.get() : stream;
    begin_.record(stream);
    other_.wait(begin_);
    for (size_t done = 0, piece = 0; done < bytes; done += kHalf, ++piece) {
      Half& half = halves_[piece % 2];
      const size_t size = std::min(kHalf, bytes - done);
      if (piece >= 2) stream_wait(reader, half.emptied);
      LOCKSTEP_CUDA(cudaMemcpyAsync(half.memory.get(), source + done, size, cudaMemcpyDeviceToHost, reader));
      half.filled.record(reader);
      stream_wait(writer, half.filled);
      LOCKSTEP_CUDA(
          cudaMemcpyAsync(destination + done, half.memory.get(), size, cudaMemcpyHostToDevice, writer));
      half.emptied.record(writer);
    }
    end_.record(other_.get());
    stream_wait(stream, end_);
  }

 private:
  struct Half {
    Handle<void*, cudaFreeHost> memory;
    Event filled, emptied;
  };
  const bool stream_is_source_;
  Event begin_, end_;
  Stream other_;  // on the device that the caller's stream does not belong to
  Half halves_[2];
};

// By stream, source and destination; never destroyed, like the devices' streams.
struct Stagings {
  using Map = std::map<std::tuple<cudaStream_t, int, int>, std::unique_ptr<Staging>>;
  std::mutex mutex;
  Map map;
};
Stagings& stagings() {
  static Stagings& all = *new Stagings;
  return all;
}

// A stream takes only events of its own device. (CUDA says which device that is from 12.8 on.)
bool belongs_to(cudaStream_t stream, int device) {
  const auto event = on<Event>(device);
  const cudaError_t status = cudaEventRecord(event.get(), stream);
  if (status == cudaSuccess) return true;
  if (status != cudaErrorInvalidResourceHandle)
    detail::throw_cuda(status, "cudaEventRecord(event, stream)", __FILE__, __LINE__);
  (void)cudaGetLastError();  // an answer: the next check must not find it
  return false;
}

void copy_through_host(std::byte* destination, int destination_device, const std::byte* source,
                       int source_device, size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(stagings().mutex);
  auto& staging = stagings().map[{stream, source_device, destination_device}];
  if (!staging) {
    const int stream_device = belongs_to(stream, source_device) ? source_device : destination_device;
    staging = std::make_unique<Staging>(source_device, destination_device, stream_device);
  }
  staging->copy(destination, source, bytes, stream);
}

}  // namespace

PeerRoute peer_route(const Device& source, const Device& destination) {
  return probed(source, destination).route;
}

void peer_copy(void* destination, const Device& destination_device, const void* source,
               const Device& source_device, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  const int from = source_device.physical(), to = destination_device.physical();
  switch (peer_route(source_device, destination_device)) {
    case PeerRoute::same_device:
      LOCKSTEP_CUDA(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, stream));
      break;
    case PeerRoute::direct:
      LOCKSTEP_CUDA(cudaMemcpyPeerAsync(destination, to, source, from, bytes, stream));
      break;
    case PeerRoute::host:
      copy_through_host(static_cast<std::byte*>(destination), to, static_cast<const std::byte*>(source), from,
                        bytes, stream);
      break;
  }
}

void free_peer_staging(cudaStream_t stream) noexcept {
  std::vector<Stagings::Map::node_type> freed;  // outside the lock: a staging has a stream that ends, too
  const std::lock_guard lock(stagings().mutex);
  auto& map = stagings().map;
  for (auto next = map.lower_bound({stream, INT_MIN, INT_MIN});
       next != map.end() && std::get<0>(next->first) == stream;) {
    const auto found = next++;
    freed.push_back(map.extract(found));
  }
}

std::vector<std::string> peer_notes(const std::vector<Device>& devices) {
  std::map<std::pair<int, int>, std::string> notes;  // by physical pair: logical devices share them
  for (const Device& a : devices) {
    for (const Device& b : devices) {
      const Probe& found = probed(a, b);
      if (found.route != PeerRoute::host) continue;
      const std::pair<int, int> pair = std::minmax({a.physical(), b.physical()});
      notes[pair] = fmt::format("physical devices {} and {}: {}: copies go through host memory", pair.first,
                                pair.second, found.reason);
    }
  }
  std::vector<std::string> lines;
  for (const auto& [pair, line] : notes) lines.push_back(line);
  return lines;
}

}  // namespace lockstep
