// Events: a record makes a new marker, so that a wait keeps the position of its own time, whatever is
// recorded later.
#include <utility>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/capture.h"
#include "hostcuda/src/runtime/counts.h"
#include "hostcuda/src/runtime/tally.h"

namespace hostcuda {
namespace {

bool is_valid(cudaEvent_t event) {
  return event != nullptr && event->alive;
}

std::shared_ptr<Marker> marker_of(cudaEvent_t event) {
  Hold hold;
  return event->marker;
}

// Destroyed events are kept and used again: a stale handle is then an error and no crash.
std::vector<CUevent_st*>& unused_events() {
  static auto* const unused = new std::vector<CUevent_st*>;
  return *unused;
}

}  // namespace
}  // namespace hostcuda

using namespace hostcuda;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return device_call([&] {
    if (event == nullptr || (flags & ~unsigned{cudaEventBlockingSync | cudaEventDisableTiming}) != 0)
      return cudaErrorInvalidValue;
    Hold hold;
    std::vector<CUevent_st*>& unused = unused_events();
    CUevent_st* made;
    if (unused.empty()) {
      made = new CUevent_st;
    } else {
      made = unused.back();
      unused.pop_back();
    }
    made->device = this_thread().device;
    made->flags = flags;
    made->alive = true;
    *event = made;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return device_call([&] {
    if (!is_valid(event)) return cudaErrorInvalidResourceHandle;
    Hold hold;
    event->alive = false;
    event->marker.reset();
    event->capture.reset();
    unused_events().push_back(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return device_call([&] {
    ++counts.events;
    CUstream_st* const found = find_stream(stream);
    if (!is_valid(event) || found == nullptr || found->device != event->device)
      return cudaErrorInvalidResourceHandle;
    bool captured;
    const cudaError_t error = record_in_capture(event, *found, &captured);
    if (error != cudaSuccess || captured) return error;
    Item record;
    record.kind = Item::Kind::record;
    record.marker = std::make_shared<Marker>((event->flags & cudaEventDisableTiming) == 0);
    record.marker->recorded = found;
    Hold hold;
    event->marker = record.marker;
    tally_event();
    enqueue(hold, *found, std::move(record));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return device_call([&] {
    ++counts.events;
    CUstream_st* const found = find_stream(stream);
    if (!is_valid(event) || found == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != 0) return cudaErrorInvalidValue;
    bool captured;
    const cudaError_t error = wait_in_capture(*found, event, &captured);
    if (error != cudaSuccess || captured) return error;
    Hold hold;
    if (event->marker == nullptr) return cudaSuccess;  // nothing was recorded: nothing to wait for
    if (!race::kDetected && event->marker->reached()) return cudaSuccess;
    Item wait;
    wait.kind = Item::Kind::wait;
    wait.marker = event->marker;
    tally_event();
    enqueue(hold, *found, std::move(wait));
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return device_call([&] {
    if (!is_valid(event)) return cudaErrorInvalidResourceHandle;
    cudaError_t error = forbid_captured(event);
    if (error == cudaSuccess) error = forbid_unsafe_call();
    if (error != cudaSuccess) return error;
    const std::shared_ptr<Marker> marker = marker_of(event);
    if (marker == nullptr) return cudaSuccess;
    release_work();
    if (!marker->reached()) return cudaErrorNotReady;
    race::acquire(marker.get());
    return device_at(event->device).error.load();
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return device_call([&] {
    if (!is_valid(event)) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = forbid_captured(event);
    if (error != cudaSuccess) return error;
    const std::shared_ptr<Marker> marker = marker_of(event);
    return marker == nullptr ? cudaSuccess : wait_for(*marker, device_at(event->device));
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return device_call([&] {
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    if (!is_valid(start) || !is_valid(end) || start->device != end->device)
      return cudaErrorInvalidResourceHandle;
    for (cudaEvent_t event : {start, end}) {
      const cudaError_t error = forbid_captured(event);
      if (error != cudaSuccess) return error;
    }
    const std::shared_ptr<Marker> from = marker_of(start), to = marker_of(end);
    if (from == nullptr || to == nullptr || !from->timed || !to->timed) return cudaErrorInvalidResourceHandle;
    release_work();
    if (!from->reached() || !to->reached()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return cudaSuccess;
  });
}

}  // extern "C"
