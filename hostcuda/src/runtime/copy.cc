// Copies and fills. The addresses say whose memory they are, the kind is checked against that. A copy from
// pageable host memory takes a snapshot before the call returns, one to pageable memory is done when it
// returns; with pinned and device memory everything is asynchronous.
#include <algorithm>
#include <cstring>
#include <utility>

#include <hostcuda/statistics.h>
#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/capture.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/counts.h"
#include "hostcuda/src/runtime/memory.h"
#include "hostcuda/src/runtime/share.h"
#include "hostcuda/src/runtime/tally.h"

namespace hostcuda {
namespace {

constexpr size_t kLeastSlice = size_t{256} << 10;  // bytes a worker copies at least, where a copy is shared
constexpr size_t kStage = size_t{1} << 20;  // bytes of host memory that a staged peer copy goes through

std::atomic<uint64_t> direct_copies{0}, staged_copies{0};

enum class Route {
  plain,
  staged,  // between devices without peer access: through host memory
  zeros,   // HOSTCUDA_PEER=broken
};

// Runs f(begin, end) over [0, bytes) on the workers that are free.
template <typename F>
cudaError_t share_bytes(Device& device, size_t bytes, F f) {
  const size_t most = config().threads == 1 ? 1 : static_cast<size_t>(4 * config().threads);
  const size_t slices = std::clamp<size_t>(bytes / kLeastSlice, 1, most);
  return share(device, static_cast<int>(slices), [&](int slice) {
    const size_t s = static_cast<size_t>(slice);
    f(bytes / slices * s, s + 1 == slices ? bytes : bytes / slices * (s + 1));
    return cudaSuccess;
  });
}

class CopyWork : public Work {
 public:
  CopyWork(void* destination, const void* source, size_t bytes, Route route, uint64_t memory_of)
      : destination_(static_cast<char*>(destination)),
        source_(static_cast<const char*>(source)),
        bytes_(bytes),
        route_(route),
        memory_of_(memory_of) {}
  const char* name() const override { return "a copy"; }
  const Operation* operation() const override { return is_tallied() ? &operation_ : nullptr; }
  // For forecasts.
  void describe(const Operation& operation) { operation_ = operation; }
  uint64_t memory_of() const override { return memory_of_; }
  // Copies from a snapshot of the source, which may change as soon as the call has returned.
  void take_snapshot() {
    snapshot_ = std::make_unique_for_overwrite<char[]>(bytes_);
    const race::Hidden seen(false);
    std::memcpy(snapshot_.get(), source_, bytes_);
    source_ = snapshot_.get();
  }
  cudaError_t run(Device& device) override {
    switch (route_) {
      case Route::plain:
        return share_bytes(device, bytes_, [this](size_t begin, size_t end) {
          std::memmove(destination_ + begin, source_ + begin, end - begin);
        });
      case Route::staged: {
        const auto stage = std::make_unique_for_overwrite<char[]>(std::min(bytes_, kStage));
        for (size_t begin = 0; begin < bytes_; begin += kStage) {
          const size_t size = std::min(kStage, bytes_ - begin);
          std::memcpy(stage.get(), source_ + begin, size);
          std::memcpy(destination_ + begin, stage.get(), size);
        }
        return cudaSuccess;
      }
      case Route::zeros:
        std::memset(destination_, 0, bytes_);
        return cudaSuccess;
    }
    return cudaErrorUnknown;
  }

 private:
  char* const destination_;
  const char* source_;
  const size_t bytes_;
  const Route route_;
  const uint64_t memory_of_;
  std::unique_ptr<char[]> snapshot_;
  Operation operation_;
};

class FillWork : public Work {
 public:
  FillWork(void* destination, int value, size_t bytes, uint64_t memory_of)
      : destination_(static_cast<char*>(destination)), value_(value), bytes_(bytes), memory_of_(memory_of) {
    operation_.kind = Operation::Kind::fill;
    operation_.name = "cudaMemsetAsync";
    operation_.device = this_thread().device;
    operation_.bytes = static_cast<double>(bytes);
  }
  const char* name() const override { return "a fill"; }
  const Operation* operation() const override { return is_tallied() ? &operation_ : nullptr; }
  uint64_t memory_of() const override { return memory_of_; }
  cudaError_t run(Device& device) override {
    return share_bytes(device, bytes_, [this](size_t begin, size_t end) {
      std::memset(destination_ + begin, value_, end - begin);
    });
  }

 private:
  char* const destination_;
  const int value_;
  const size_t bytes_;
  const uint64_t memory_of_;
  Operation operation_;
};

// One end of a copy.
struct End {
  bool known = false;   // memory of hostcuda: on a device, or pinned
  bool inside = false;  // the whole range lies in one allocation
  int device = kPinned;
  bool on_device() const { return known && device != kPinned; }
  bool pageable() const { return !known; }
  uint64_t mask() const { return on_device() ? uint64_t{1} << device : 0; }
};

End find_end(const void* pointer, size_t bytes) {
  const AddressInfo info = describe_address(pointer);
  End end;
  end.known = info.state == AddressInfo::State::live;
  end.device = info.device;
  const size_t offset =
      static_cast<size_t>(static_cast<const char*>(pointer) - static_cast<const char*>(info.base));
  end.inside = !end.known || bytes <= info.size - offset;
  // Memory that was freed, or lies beside an allocation, is no host memory either.
  if (info.state == AddressInfo::State::freed || info.state == AddressInfo::State::guard) end.inside = false;
  return end;
}

// Pinned memory is reachable from devices too, so it may stand for either side.
bool fits(const End& end, bool device_side) {
  return device_side ? end.known : !end.on_device();
}

cudaError_t check_ends(const void* destination, const End& to, const void* source, const End& from,
                       cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (destination == nullptr || source == nullptr || !to.inside || !from.inside) return cudaErrorInvalidValue;
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  const bool device_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool device_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return fits(to, device_to) && fits(from, device_from) ? cudaSuccess : cudaErrorInvalidValue;
}

Route find_route(const End& to, const End& from) {
  if (!to.on_device() || !from.on_device() || to.device == from.device) return Route::plain;
  const bool enabled = ((device_at(to.device).peers | 0) >> from.device & 1) != 0 ||
                       ((device_at(from.device).peers | 0) >> to.device & 1) != 0;
  (enabled ? direct_copies : staged_copies).fetch_add(1, std::memory_order_relaxed);
  if (!enabled) return Route::staged;
  return config().peer == PeerAccess::broken ? Route::zeros : Route::plain;
}

Operation describe(const End& to, const End& from, size_t bytes, int device, bool waits) {
  Operation operation;
  operation.device = device;
  operation.kind = Operation::Kind::copy;
  operation.bytes = static_cast<double>(bytes);
  operation.waits = waits;
  if (to.on_device() && from.on_device()) {
    operation.link = to.device == from.device ? Link::device : Link::peer;
    operation.name = to.device == from.device ? "copy within a device" : "copy between devices";
  } else {
    operation.link = to.pageable() || from.pageable() ? Link::pageable : Link::pinned;
    operation.name = to.on_device() ? "copy to a device" : "copy to the host";
  }
  return operation;
}

cudaError_t wait_for_stream(CUstream_st& stream) {
  std::shared_ptr<Marker> marker;
  {
    Hold hold;
    marker = tail_marker(hold, stream);
  }
  return wait_for(*marker, device_at(stream.device));
}

// `blocking`: cudaMemcpy, which returns when the copy is done, except between device memories.
cudaError_t copy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t handle, bool blocking) {
  CUstream_st* const stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  const End to = find_end(destination, bytes), from = find_end(source, bytes);
  cudaError_t error = check_ends(destination, to, source, from, kind);
  if (error == cudaSuccess && blocking) error = forbid_unsafe_call();
  if (error != cudaSuccess) return error;
  const bool captured = is_captured(*stream);
  const bool wait = !captured && (blocking ? !(to.on_device() && from.on_device()) : to.pageable());
  auto work =
      std::make_unique<CopyWork>(destination, source, bytes, find_route(to, from), to.mask() | from.mask());
  if (from.pageable() && !wait && !captured) work->take_snapshot();
  if (is_tallied()) work->describe(describe(to, from, bytes, stream->device, wait));
  ++counts.copies;
  error = submit(*stream, std::move(work));
  return error == cudaSuccess && wait ? wait_for_stream(*stream) : error;
}

cudaError_t copy_between(void* destination, int destination_device, const void* source, int source_device,
                         size_t bytes, cudaStream_t stream, bool blocking) {
  for (const int device : {destination_device, source_device})
    if (device < 0 || device >= config().devices) return cudaErrorInvalidDevice;
  if (bytes != 0) {
    const End to = find_end(destination, bytes), from = find_end(source, bytes);
    if (!to.on_device() || to.device != destination_device || !from.on_device() ||
        from.device != source_device)
      return cudaErrorInvalidValue;
  }
  return copy(destination, source, bytes, cudaMemcpyDeviceToDevice, stream, blocking);
}

cudaError_t fill(void* pointer, int value, size_t bytes, cudaStream_t handle) {
  CUstream_st* const stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  const End to = find_end(pointer, bytes);
  if (!to.known || !to.inside) return cudaErrorInvalidValue;
  return submit(*stream, std::make_unique<FillWork>(pointer, value, bytes, to.mask()));
}

}  // namespace

PeerCopies peer_copies() {
  return {direct_copies.load(), staged_copies.load()};
}

}  // namespace hostcuda

using namespace hostcuda;

extern "C" {

cudaError_t cudaMemcpy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind) {
  return device_call([&] { return copy(destination, source, bytes, kind, nullptr, true); });
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return device_call([&] { return copy(destination, source, bytes, kind, stream, false); });
}

cudaError_t cudaMemcpyPeer(void* destination, int destination_device, const void* source, int source_device,
                           size_t bytes) {
  return device_call([&] {
    return copy_between(destination, destination_device, source, source_device, bytes, nullptr, true);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* destination, int destination_device, const void* source,
                                int source_device, size_t bytes, cudaStream_t stream) {
  return device_call([&] {
    return copy_between(destination, destination_device, source, source_device, bytes, stream, false);
  });
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  return device_call([&] { return fill(pointer, value, bytes, nullptr); });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  return device_call([&] { return fill(pointer, value, bytes, stream); });
}

}  // extern "C"
