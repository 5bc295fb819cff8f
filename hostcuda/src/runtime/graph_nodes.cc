// Graphs that are built node by node. A node is made by capturing the one call that does the same on a
// stream, so it is checked and named as that call is.
#include <algorithm>
#include <cstdint>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/capture.h"

namespace hostcuda {
namespace {

class Nothing : public Work {
 public:
  const char* name() const override { return "an empty node"; }
  cudaError_t run(Device&) override { return cudaSuccess; }
};

// The node that call(stream) enqueues: one, or none where there is nothing to do.
template <typename Call>
cudaError_t capture_one(Call call, Node* node) {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
  cudaGraph_t captured = nullptr;
  if (error == cudaSuccess) {
    error = call(stream);
    const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
    if (error == cudaSuccess) error = ended;
  }
  cudaStreamDestroy(stream);
  if (error == cudaSuccess && captured->graph->nodes.size() > 1) error = cudaErrorNotSupported;
  if (error == cudaSuccess && !captured->graph->nodes.empty()) *node = captured->graph->nodes[0];
  delete captured;
  return error;
}

// The place of a node in its graph, or -1.
int place_of(const GraphNodes& graph, cudaGraphNode_t node) {
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (reinterpret_cast<cudaGraphNode_t>(const_cast<Node*>(&graph.nodes[i])) == node)
      return static_cast<int>(i);
  return -1;
}

// The lane of a node that the new one comes after, if that is the last of its lane and on this device; else a
// lane of its own. The first node takes the graph's first lane.
int choose_lane(GraphNodes& graph, const std::vector<int>& after, int device) {
  std::vector<int> last(graph.lane_device.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    last[static_cast<size_t>(graph.nodes[i].lane)] = static_cast<int>(i);
  if (graph.nodes.empty()) graph.lane_device[0] = device;
  for (size_t lane = 0; lane < last.size(); ++lane)
    if (graph.lane_device[lane] == device &&
        (last[lane] < 0 || std::find(after.begin(), after.end(), last[lane]) != after.end()))
      return static_cast<int>(lane);
  graph.lane_device.push_back(device);
  return static_cast<int>(last.size());
}

template <typename Call>
cudaError_t add_node(cudaGraphNode_t* handle, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                     Call call) {
  if (handle == nullptr || graph == nullptr || (count > 0 && after == nullptr)) return cudaErrorInvalidValue;
  GraphNodes& nodes = *graph->graph;
  Node node{std::make_shared<Nothing>(), Item::Kind::work, 0, {}};
  const cudaError_t error = capture_one(call, &node);
  if (error != cudaSuccess) return error;
  node.after.clear();
  for (size_t i = 0; i < count; ++i) {
    node.after.push_back(place_of(nodes, after[i]));
    if (node.after.back() < 0) return cudaErrorInvalidValue;
  }
  node.lane = choose_lane(nodes, node.after, this_thread().device);
  race::release(node.work.get());
  nodes.nodes.push_back(std::move(node));
  *handle = reinterpret_cast<cudaGraphNode_t>(&nodes.nodes.back());
  return cudaSuccess;
}

cudaError_t copy(const cudaMemcpy3DParms& p, cudaStream_t stream) {
  if (p.srcArray != nullptr || p.dstArray != nullptr || p.extent.depth > 1) return cudaErrorNotSupported;
  const auto at = [](const cudaPitchedPtr& pointer, const cudaPos& pos) {
    return static_cast<char*>(pointer.ptr) + pos.y * pointer.pitch + pos.x;
  };
  if (p.extent.height <= 1)
    return cudaMemcpyAsync(at(p.dstPtr, p.dstPos), at(p.srcPtr, p.srcPos), p.extent.width, p.kind, stream);
  return cudaMemcpy2DAsync(at(p.dstPtr, p.dstPos), p.dstPtr.pitch, at(p.srcPtr, p.srcPos), p.srcPtr.pitch,
                           p.extent.width, p.extent.height, p.kind, stream);
}

// Elements of 2 and 4 bytes only where all their bytes are the same, as those of 0 are.
cudaError_t fill(const cudaMemsetParams& p, cudaStream_t stream) {
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4) return cudaErrorInvalidValue;
  const unsigned byte = p.value & 0xff;
  for (unsigned i = 1; i < p.elementSize; ++i)
    if (((p.value >> (8 * i)) & 0xff) != byte) return cudaErrorNotSupported;
  const size_t bytes = p.width * p.elementSize;
  if (p.height <= 1) return cudaMemsetAsync(p.dst, static_cast<int>(byte), bytes, stream);
  return cudaMemset2DAsync(p.dst, p.pitch, static_cast<int>(byte), bytes, p.height, stream);
}

}  // namespace
}  // namespace hostcuda

using namespace hostcuda;

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return device_call([&] {
    if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    *graph = new CUgraph_st{std::make_shared<GraphNodes>()};
    (*graph)->graph->lane_device.push_back(this_thread().device);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  return device_call([&] {
    if (clone == nullptr || graph == nullptr) return cudaErrorInvalidValue;
    *clone = new CUgraph_st{std::make_shared<GraphNodes>(*graph->graph)};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   size_t count, const cudaKernelNodeParams* p) {
  return device_call([&] {
    if (p == nullptr || p->extra != nullptr) return cudaErrorInvalidValue;
    return add_node(node, graph, after, count, [&](cudaStream_t stream) {
      return cudaLaunchKernel(p->func, p->gridDim, p->blockDim, p->kernelParams, p->sharedMemBytes, stream);
    });
  });
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   size_t count, const cudaMemcpy3DParms* p) {
  return device_call([&] {
    if (p == nullptr) return cudaErrorInvalidValue;
    return add_node(node, graph, after, count, [&](cudaStream_t stream) { return copy(*p, stream); });
  });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                     size_t count, void* destination, const void* source, size_t bytes,
                                     cudaMemcpyKind kind) {
  return device_call([&] {
    return add_node(node, graph, after, count, [&](cudaStream_t stream) {
      return cudaMemcpyAsync(destination, source, bytes, kind, stream);
    });
  });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   size_t count, const cudaMemsetParams* p) {
  return device_call([&] {
    if (p == nullptr) return cudaErrorInvalidValue;
    return add_node(node, graph, after, count, [&](cudaStream_t stream) { return fill(*p, stream); });
  });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                 size_t count, const cudaHostNodeParams* p) {
  return device_call([&] {
    if (p == nullptr) return cudaErrorInvalidValue;
    return add_node(node, graph, after, count,
                    [&](cudaStream_t stream) { return cudaLaunchHostFunc(stream, p->fn, p->userData); });
  });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                  size_t count) {
  return device_call(
      [&] { return add_node(node, graph, after, count, [](cudaStream_t) { return cudaSuccess; }); });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, size_t count) {
  return device_call([&] {
    if (graph == nullptr || (count > 0 && (from == nullptr || to == nullptr))) return cudaErrorInvalidValue;
    GraphNodes& nodes = *graph->graph;
    for (size_t i = 0; i < count; ++i) {
      const int before = place_of(nodes, from[i]), node = place_of(nodes, to[i]);
      if (before < 0 || node < 0 || before == node) return cudaErrorInvalidValue;
      nodes.nodes[static_cast<size_t>(node)].after.push_back(before);
    }
    return cudaSuccess;
  });
}

}  // extern "C"
