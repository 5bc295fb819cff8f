#include "hostcuda/src/runtime/capture.h"

#include <algorithm>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/tally.h"

namespace hostcuda {
namespace {

std::mutex capture_lock;
std::atomic<int> active{0};  // captures that have not ended: with none, calls need not look at them
std::vector<std::shared_ptr<Capture>>& captures() {
  static auto* const all = new std::vector<std::shared_ptr<Capture>>;
  return *all;
}

bool any_active() {
  return active.load(std::memory_order_acquire) != 0;
}

void add_to(std::vector<int>& nodes, const std::vector<int>& more) {
  for (const int node : more)
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

int lane_of(Capture& capture, CUstream_st& stream) {
  const auto found = std::find(capture.streams.begin(), capture.streams.end(), &stream);
  return static_cast<int>(found - capture.streams.begin());
}

void add_lane(const std::shared_ptr<Capture>& capture, CUstream_st& stream) {
  stream.capture = capture;
  stream.frontier.clear();
  capture->streams.push_back(&stream);
  capture->graph->lane_device.push_back(stream.device);
}

// Work on the legacy stream would have to wait for blocking streams, which cannot be while one is captured.
cudaError_t forbid_implicit_join(const CUstream_st& stream) {
  if (!stream.legacy) return cudaSuccess;
  cudaError_t result = cudaSuccess;
  for (const auto& capture : captures()) {
    for (const CUstream_st* other : capture->streams) {
      if (other->device != stream.device || (other->flags & cudaStreamNonBlocking) != 0) continue;
      capture->invalid = true;
      result = cudaErrorStreamCaptureImplicit;
    }
  }
  return result;
}

// Every node that nothing comes after must be among those that the origin's next node would come after.
bool is_joined(const Capture& capture) {
  const std::deque<Node>& nodes = capture.graph->nodes;
  std::vector<bool> has_successor(nodes.size(), false);
  for (const Node& node : nodes)
    for (const int before : node.after) has_successor[static_cast<size_t>(before)] = true;
  const std::vector<int>& last = capture.origin->frontier;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (!has_successor[i] && std::find(last.begin(), last.end(), static_cast<int>(i)) == last.end())
      return false;
  return true;
}

cudaError_t begin_capture(CUstream_st& stream, cudaStreamCaptureMode mode) {
  if (stream.legacy) return cudaErrorStreamCaptureUnsupported;
  const std::lock_guard lock(capture_lock);
  if (stream.capture != nullptr) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->origin = &stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->graph = std::make_shared<GraphNodes>();
  add_lane(capture, stream);
  captures().push_back(std::move(capture));
  active.fetch_add(1, std::memory_order_release);
  return cudaSuccess;
}

cudaError_t end_capture(CUstream_st& stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::lock_guard lock(capture_lock);
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const bool joined = is_joined(*capture);
  for (CUstream_st* one : capture->streams) {
    one->capture.reset();
    one->frontier.clear();
  }
  captures().erase(std::find(captures().begin(), captures().end(), capture));
  active.fetch_sub(1, std::memory_order_release);
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{capture->graph};
  return cudaSuccess;
}

}  // namespace

cudaError_t submit(CUstream_st& stream, std::unique_ptr<Work> work, Item::Kind kind) {
  if (any_active()) {
    const std::lock_guard lock(capture_lock);
    if (stream.capture != nullptr) {
      Capture& capture = *stream.capture;
      if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
      race::release(work.get());
      std::deque<Node>& nodes = capture.graph->nodes;
      nodes.push_back({std::move(work), kind, lane_of(capture, stream), std::move(stream.frontier)});
      stream.frontier = {static_cast<int>(nodes.size()) - 1};
      return cudaSuccess;
    }
    const cudaError_t error = forbid_implicit_join(stream);
    if (error != cudaSuccess) return error;
  }
  if (is_tallied() && work->operation() != nullptr) tally(*work->operation());
  enqueue_work(stream, work.release(), kind);
  return cudaSuccess;
}

cudaError_t forbid_unsafe_call() {
  const cudaStreamCaptureMode mode = this_thread().capture_mode;
  if (!any_active() || mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(capture_lock);
  cudaError_t result = cudaSuccess;
  for (const auto& capture : captures()) {
    if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    const bool everywhere =
        mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!own && !everywhere) continue;
    capture->invalid = true;
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

cudaError_t forbid_synchronising(CUstream_st& stream) {
  if (!any_active()) return cudaSuccess;
  const std::lock_guard lock(capture_lock);
  if (stream.capture == nullptr) return forbid_implicit_join(stream);
  if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  stream.capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t forbid_synchronising_device(int device) {
  if (!any_active()) return cudaSuccess;
  const std::lock_guard lock(capture_lock);
  cudaError_t result = cudaSuccess;
  for (const auto& capture : captures()) {
    const std::vector<int>& devices = capture->graph->lane_device;
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) continue;
    capture->invalid = true;
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

cudaError_t record_in_capture(cudaEvent_t event, CUstream_st& stream, bool* captured) {
  *captured = false;
  if (!any_active() && event->capture == nullptr) return cudaSuccess;
  const std::lock_guard lock(capture_lock);
  if (stream.capture == nullptr) {
    const cudaError_t error = forbid_implicit_join(stream);
    if (error == cudaSuccess) event->capture.reset();
    return error;
  }
  if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  event->capture = stream.capture;
  event->nodes = stream.frontier;
  *captured = true;
  return cudaSuccess;
}

cudaError_t wait_in_capture(CUstream_st& stream, cudaEvent_t event, bool* captured) {
  *captured = false;
  if (!any_active() && event->capture == nullptr) return cudaSuccess;
  const std::lock_guard lock(capture_lock);
  if (event->capture == nullptr) {
    if (stream.capture == nullptr) return forbid_implicit_join(stream);
    stream.capture->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (event->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (std::find(captures().begin(), captures().end(), event->capture) == captures().end())
    return cudaErrorCapturedEvent;  // that capture has ended
  if (stream.legacy) {
    event->capture->invalid = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (stream.capture == nullptr) {
    add_lane(event->capture, stream);
  } else if (stream.capture != event->capture) {
    stream.capture->invalid = event->capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  add_to(stream.frontier, event->nodes);
  *captured = true;
  return cudaSuccess;
}

cudaError_t forbid_captured(cudaEvent_t event) {
  if (!any_active() && event->capture == nullptr) return cudaSuccess;
  const std::lock_guard lock(capture_lock);
  if (event->capture == nullptr) return cudaSuccess;
  event->capture->invalid = true;
  return cudaErrorCapturedEvent;
}

bool is_captured(const CUstream_st& stream) {
  if (!any_active()) return false;
  const std::lock_guard lock(capture_lock);
  return stream.capture != nullptr;
}

}  // namespace hostcuda

using namespace hostcuda;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
      return cudaErrorInvalidValue;
    return begin_capture(*found, mode);
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (graph == nullptr) return cudaErrorInvalidValue;
    return end_capture(*found, graph);
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (status == nullptr) return cudaErrorInvalidValue;
    *status = cudaStreamCaptureStatusNone;
    if (!any_active()) return cudaSuccess;
    const std::lock_guard lock(capture_lock);
    if (found->capture != nullptr)
      *status = found->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return forbid_implicit_join(*found);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return plain_call([&] {
    if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed)
      return cudaErrorInvalidValue;
    std::swap(*mode, this_thread().capture_mode);
    return cudaSuccess;
  });
}

}  // extern "C"
