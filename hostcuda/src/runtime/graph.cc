// Graphs: instantiated once, replayed cheaply. The nodes of each captured stream form a lane, which runs in
// order; markers carry the dependencies between lanes. The first lane runs inside the stream that launches
// the graph, handed over as one item; the others have streams of their own, on their devices, and are joined
// at the end.
#include <algorithm>

#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/capture.h"
#include "hostcuda/src/runtime/tally.h"

namespace hostcuda {

struct GraphExec {
  explicit GraphExec(std::shared_ptr<GraphNodes> nodes);
  ~GraphExec();
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;
  // Starts the lanes; the result is for the launching stream to run.
  const std::vector<Item>& start(int device);

  std::shared_ptr<GraphNodes> graph;
  std::vector<CUstream_st*> lanes;
  std::vector<std::vector<Item>> lane_items;
  std::vector<Item> on_first_device;  // for launching streams on the first lane's device: its items included
  std::vector<Item> elsewhere;        // for others: start the lanes, wait for them
  std::vector<std::shared_ptr<Marker>> markers;
  std::shared_ptr<Marker> last_launch;  // under the scheduler's lock

 private:
  Item marker_item(Item::Kind kind, const std::shared_ptr<Marker>& marker);
  void add_nodes();
};

GraphExec::GraphExec(std::shared_ptr<GraphNodes> nodes) : graph(std::move(nodes)) {
  for (const int device : graph->lane_device)
    lanes.push_back(create_stream(device, cudaStreamNonBlocking, true));
  const auto make_marker = [&] {
    markers.push_back(std::make_shared<Marker>());
    return markers.back();
  };
  lane_items.resize(lanes.size());
  const std::shared_ptr<Marker> start = make_marker();
  add_nodes();
  const bool one_lane = lanes.size() == 1;
  if (!one_lane) on_first_device.push_back(marker_item(Item::Kind::record, start));
  elsewhere.push_back(marker_item(Item::Kind::record, start));
  on_first_device.insert(on_first_device.end(), lane_items[0].begin(), lane_items[0].end());
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    const std::shared_ptr<Marker> end = make_marker();
    lane_items[lane].insert(lane_items[lane].begin(), marker_item(Item::Kind::wait, start));
    lane_items[lane].push_back(marker_item(Item::Kind::record, end));
    end->recorded = lanes[lane];
    if (lane > 0) on_first_device.push_back(marker_item(Item::Kind::wait, end));
    elsewhere.push_back(marker_item(Item::Kind::wait, end));
  }
}

GraphExec::~GraphExec() {
  for (CUstream_st* lane : lanes) destroy_stream(lane);
}

Item GraphExec::marker_item(Item::Kind kind, const std::shared_ptr<Marker>& marker) {
  Item item;
  item.kind = kind;
  item.marker = marker;
  return item;
}

// Each lane gets its nodes in order. Before a node it waits for those of other lanes that it depends on,
// unless it has already waited for a later one of that lane.
void GraphExec::add_nodes() {
  const std::deque<Node>& nodes = graph->nodes;
  std::vector<std::vector<int>> waited(lanes.size(), std::vector<int>(lanes.size(), -1));
  std::vector<std::shared_ptr<Marker>> done(nodes.size());
  std::vector<std::vector<int>> needed(nodes.size());  // by node: those of other lanes to wait for
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<int> after = nodes[i].after;
    std::sort(after.rbegin(), after.rend());
    for (const int before : after) {
      const int lane = nodes[static_cast<size_t>(before)].lane;
      int& latest = waited[static_cast<size_t>(nodes[i].lane)][static_cast<size_t>(lane)];
      if (lane == nodes[i].lane || latest >= before) continue;
      latest = before;
      needed[i].push_back(before);
      std::shared_ptr<Marker>& marker = done[static_cast<size_t>(before)];
      if (marker != nullptr) continue;
      marker = std::make_shared<Marker>();
      marker->recorded = lanes[static_cast<size_t>(lane)];
      markers.push_back(marker);
    }
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<Item>& items = lane_items[static_cast<size_t>(nodes[i].lane)];
    for (const int before : needed[i])
      items.push_back(marker_item(Item::Kind::wait, done[static_cast<size_t>(before)]));
    Item item;
    item.kind = nodes[i].kind;
    item.owned = false;
    item.work = nodes[i].work.get();
    item.name = item.work->name();
    items.push_back(item);
    if (done[i] != nullptr) items.push_back(marker_item(Item::Kind::record, done[i]));
  }
}

const std::vector<Item>& GraphExec::start(int device) {
  for (const auto& marker : markers) marker->state.store(0, std::memory_order_relaxed);
  const bool first_is_inside = device == graph->lane_device[0];
  Hold hold;
  for (size_t lane = first_is_inside ? 1 : 0; lane < lanes.size(); ++lane) {
    Item item;
    item.kind = Item::Kind::program;
    item.program = &lane_items[lane];
    append(hold, *lanes[lane], std::move(item));
  }
  return first_is_inside ? on_first_device : elsewhere;
}

namespace {

// A copy of the graph in which every node comes after those it waits for: a graph that is built by hand may
// have them in any order, and may grow once it was instantiated. Null where nodes wait for each other.
std::shared_ptr<GraphNodes> in_order(const GraphNodes& graph) {
  auto ordered = std::make_shared<GraphNodes>();
  ordered->lane_device = graph.lane_device;
  std::vector<int> place(graph.nodes.size(), -1);
  for (bool found = true; found && ordered->nodes.size() < graph.nodes.size();) {
    found = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      const auto is_placed = [&](int before) { return place[static_cast<size_t>(before)] >= 0; };
      if (place[i] >= 0 || !std::all_of(node.after.begin(), node.after.end(), is_placed)) continue;
      found = true;
      place[i] = static_cast<int>(ordered->nodes.size());
      ordered->nodes.push_back(node);
      for (int& before : ordered->nodes.back().after) before = place[static_cast<size_t>(before)];
    }
  }
  return ordered->nodes.size() == graph.nodes.size() ? ordered : nullptr;
}

class GraphLaunch : public Work {
 public:
  GraphLaunch(std::shared_ptr<GraphExec> exec, int device) : exec_(std::move(exec)), device_(device) {}
  const char* name() const override { return "a graph"; }
  cudaError_t run(Device&) override { return cudaSuccess; }
  const std::vector<Item>* expand() override { return &exec_->start(device_); }

 private:
  std::shared_ptr<GraphExec> exec_;
  const int device_;
};

// Launches of one executable graph run one after the other, whatever their streams.
void launch(const std::shared_ptr<GraphExec>& exec, CUstream_st& stream) {
  Item item;
  item.kind = Item::Kind::graph;
  item.work = new GraphLaunch(exec, stream.device);
  item.name = "a graph";
  race::release(item.work);
  if (is_tallied()) {
    Operation call;
    call.name = "cudaGraphLaunch";
    tally(call);
    for (const Node& node : exec->graph->nodes)
      if (node.work->operation() != nullptr) tally_in_graph(*node.work->operation());
  }
  Hold hold;
  if (exec->last_launch != nullptr && (race::kDetected || !exec->last_launch->reached())) {
    Item wait;
    wait.kind = Item::Kind::wait;
    wait.marker = exec->last_launch;
    enqueue(hold, stream, std::move(wait));
  }
  enqueue(hold, stream, std::move(item));
  exec->last_launch = tail_marker(hold, stream);
}

}  // namespace
}  // namespace hostcuda

using namespace hostcuda;

struct CUgraphExec_st {
  std::shared_ptr<GraphExec> exec;
};

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return device_call([&] {
    if (exec == nullptr || graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    std::shared_ptr<GraphNodes> nodes = in_order(*graph->graph);
    if (nodes == nullptr) return cudaErrorInvalidValue;
    *exec = new CUgraphExec_st{std::make_shared<GraphExec>(std::move(nodes))};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return device_call([&] {
    CUstream_st* const found = find_stream(stream);
    if (exec == nullptr) return cudaErrorInvalidValue;
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = forbid_synchronising(*found);  // graphs inside graphs are not supported
    if (error == cudaSuccess) launch(exec->exec, *found);
    return error;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return device_call([&] {
    if (graph == nullptr || count == nullptr) return cudaErrorInvalidValue;
    const std::deque<Node>& all = graph->graph->nodes;
    if (nodes != nullptr) {
      for (size_t i = 0; i < *count; ++i)
        nodes[i] = i < all.size() ? reinterpret_cast<cudaGraphNode_t>(const_cast<Node*>(&all[i])) : nullptr;
      *count = std::min(*count, all.size());
    } else {
      *count = all.size();
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return plain_call([&] {
    if (graph == nullptr) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return plain_call([&] {
    if (exec == nullptr) return cudaErrorInvalidValue;
    delete exec;
    return cudaSuccess;
  });
}

}  // extern "C"
