// Stream capture: while a stream is captured, what is enqueued on it becomes nodes of a graph instead.
// Waiting for an event that was recorded in a captured stream brings another stream into the capture; it must
// be joined again the same way before the capture ends.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "hostcuda/src/runtime/scheduler.h"

namespace hostcuda {

struct Node {
  std::shared_ptr<Work> work;  // shared with what was instantiated or cloned from the graph
  Item::Kind kind;             // work or host_function
  int lane;                    // the captured stream that it came from
  std::vector<int> after;      // the nodes that must be done before it
};

struct GraphNodes {
  std::deque<Node> nodes;        // whose addresses are the handles of nodes
  std::vector<int> lane_device;  // by lane; lane 0 is the stream that began the capture
};

struct Capture {
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool invalid = false;
  std::shared_ptr<GraphNodes> graph;
  std::vector<CUstream_st*> streams;  // by lane
};

// Enqueues the work, or makes it a node where the stream is being captured.
cudaError_t submit(CUstream_st& stream, std::unique_ptr<Work> work, Item::Kind kind = Item::Kind::work);

// The rules while streams are captured. Each gives cudaSuccess, or the error of a call that is not allowed
// now, in which case the captures concerned are invalid from then on.
cudaError_t forbid_unsafe_call();  // cudaMalloc and the like, by the threads' capture modes
cudaError_t forbid_synchronising(
    CUstream_st& stream);  // the host may not wait for, or ask about, captured work
cudaError_t forbid_synchronising_device(int device);

// Event record and wait. `*captured` says whether the capture has dealt with it.
cudaError_t record_in_capture(cudaEvent_t event, CUstream_st& stream, bool* captured);
cudaError_t wait_in_capture(CUstream_st& stream, cudaEvent_t event, bool* captured);
cudaError_t forbid_captured(cudaEvent_t event);  // for calls on an event that was last recorded in a capture
bool is_captured(const CUstream_st& stream);

}  // namespace hostcuda

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  bool alive = true;
  // Under the scheduler's lock: the last record; null before the first.
  std::shared_ptr<hostcuda::Marker> marker;
  // Under the capture lock: the capture in which it was last recorded, and the nodes it stands for.
  std::shared_ptr<hostcuda::Capture> capture;
  std::vector<int> nodes;
};

struct CUgraph_st {
  std::shared_ptr<hostcuda::GraphNodes> graph;
};
