// Capture and graphs: what is captured does not run, what is replayed runs in order, and what may not be done
// meanwhile.
#include "tests/hostcuda/cuda_objects.h"

namespace {

class GraphHandle {
 public:
  ~GraphHandle() {
    if (exec_ != nullptr) {
      EXPECT_CUDA(cudaGraphExecDestroy(exec_));
    }
    if (graph_ != nullptr) {
      EXPECT_CUDA(cudaGraphDestroy(graph_));
    }
  }
  void end(cudaStream_t stream) {
    ASSERT_CUDA(cudaStreamEndCapture(stream, &graph_));
    ASSERT_CUDA(cudaGraphInstantiate(&exec_, graph_, 0));
  }
  void launch(cudaStream_t stream) { ASSERT_CUDA(cudaGraphLaunch(exec_, stream)); }
  size_t nodes() {
    size_t count = 0;
    EXPECT_CUDA(cudaGraphGetNodes(graph_, nullptr, &count));
    return count;
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

cudaError_t begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  return cudaStreamBeginCapture(stream, mode);
}

// Ends a capture that went wrong: the error, and no graph.
void expect_end(cudaStream_t stream, cudaError_t error) {
  cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(8);
  EXPECT_CUDA_ERROR(cudaStreamEndCapture(stream, &graph), error);
  EXPECT_EQ(graph, nullptr);
}

void add_one(void* counter) {
  ++*static_cast<int*>(counter);
}

}  // namespace

TEST(Capture, RecordsWithoutRunning) {
  StreamHandle stream;
  DeviceInts data(10);
  data.set(counting(10));
  ASSERT_CUDA(begin(stream));
  cudaStreamCaptureStatus status;
  ASSERT_CUDA(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  ASSERT_CUDA(cudaMemsetAsync(data.get(), 1, data.bytes(), stream));
  ASSERT_CUDA(cudaMemsetAsync(data.get(), 2, 4, stream));
  GraphHandle graph;
  graph.end(stream);
  ASSERT_CUDA(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(graph.nodes(), 2u);
  EXPECT_EQ(data.values(), counting(10));
  graph.launch(stream);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  std::vector<int> wanted(10, 0x01010101);
  wanted[0] = 0x02020202;
  EXPECT_EQ(data.values(), wanted);
}

TEST(Graph, ReplaysSeeWhatWasWrittenSince) {
  StreamHandle stream;
  DeviceInts data(100);
  PinnedInts input(100), output(100);
  ASSERT_CUDA(begin(stream));
  ASSERT_CUDA(cudaMemcpyAsync(data.get(), input.get(), data.bytes(), cudaMemcpyHostToDevice, stream));
  ASSERT_CUDA(cudaMemcpyAsync(output.get(), data.get(), data.bytes(), cudaMemcpyDeviceToHost, stream));
  GraphHandle graph;
  graph.end(stream);
  for (int round = 0; round < 100; ++round) {
    for (size_t i = 0; i < 100; ++i) input[i] = round * 1000 + static_cast<int>(i);
    graph.launch(stream);
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < 100; ++i) ASSERT_EQ(output[i], round * 1000 + static_cast<int>(i));
  }
}

TEST(Graph, LaunchesRunOneAfterTheOther) {
  StreamHandle first, second;
  int counter = 0;
  ASSERT_CUDA(begin(first));
  for (int i = 0; i < 3; ++i) ASSERT_CUDA(cudaLaunchHostFunc(first, add_one, &counter));
  GraphHandle graph;
  graph.end(first);
  // In turn on two streams: a host function that ran twice at once would lose an addition (and be a race).
  for (int i = 0; i < 20; ++i) graph.launch(i % 2 == 0 ? first : second);
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(counter, 60);
}

TEST(Graph, KeepsTheOrderOfForkAndJoin) {
  StreamHandle origin, branch;
  EventHandle fork, join;
  struct Note {
    std::mutex mutex;
    std::vector<int> order;
  } note;
  struct Mark {
    Note* note;
    int what;
  } marks[4] = {{&note, 0}, {&note, 1}, {&note, 2}, {&note, 3}};
  const auto write = [](void* argument) {
    auto* const mark = static_cast<Mark*>(argument);
    const std::lock_guard lock(mark->note->mutex);
    mark->note->order.push_back(mark->what);
  };
  ASSERT_CUDA(begin(origin));
  ASSERT_CUDA(cudaLaunchHostFunc(origin, write, &marks[0]));
  ASSERT_CUDA(cudaEventRecord(fork, origin));
  ASSERT_CUDA(cudaStreamWaitEvent(branch, fork));
  ASSERT_CUDA(cudaLaunchHostFunc(branch, write, &marks[1]));
  ASSERT_CUDA(cudaLaunchHostFunc(branch, write, &marks[2]));
  ASSERT_CUDA(cudaEventRecord(join, branch));
  ASSERT_CUDA(cudaStreamWaitEvent(origin, join));
  ASSERT_CUDA(cudaLaunchHostFunc(origin, write, &marks[3]));
  GraphHandle graph;
  graph.end(origin);
  EXPECT_EQ(graph.nodes(), 4u);
  std::vector<int> wanted;
  for (int round = 0; round < 50; ++round) {
    graph.launch(origin);
    for (int i = 0; i < 4; ++i) wanted.push_back(i);
  }
  ASSERT_CUDA(cudaStreamSynchronize(origin));
  EXPECT_EQ(note.order, wanted);
}

TEST(Graph, SpansDevices) {
  SKIP_BELOW_DEVICES(2);
  constexpr size_t kCount = 1000;
  StreamHandle origin;
  EventHandle fork;
  DeviceInts here(kCount);
  PinnedInts input(kCount), output(kCount);
  ASSERT_CUDA(cudaSetDevice(1));
  StreamHandle branch;
  EventHandle join;
  DeviceInts there(kCount);
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(begin(origin));
  ASSERT_CUDA(cudaMemcpyAsync(here.get(), input.get(), here.bytes(), cudaMemcpyHostToDevice, origin));
  ASSERT_CUDA(cudaEventRecord(fork, origin));
  ASSERT_CUDA(cudaStreamWaitEvent(branch, fork));
  ASSERT_CUDA(cudaMemcpyPeerAsync(there.get(), 1, here.get(), 0, here.bytes(), branch));
  ASSERT_CUDA(cudaSetDevice(1));
  ASSERT_CUDA(cudaMemsetAsync(there.get(), 0, 4, branch));
  ASSERT_CUDA(cudaEventRecord(join, branch));
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaStreamWaitEvent(origin, join));
  ASSERT_CUDA(cudaMemcpyAsync(output.get(), there.get(), here.bytes(), cudaMemcpyDeviceToHost, origin));
  GraphHandle graph;
  graph.end(origin);
  for (int round = 1; round < 50; ++round) {
    for (size_t i = 0; i < kCount; ++i) input[i] = round + static_cast<int>(i);
    graph.launch(round % 2 == 0 ? origin : branch);  // also from a stream of the other device
    ASSERT_CUDA(cudaStreamSynchronize(round % 2 == 0 ? origin : branch));
    ASSERT_EQ(output[0], 0);
    for (size_t i = 1; i < kCount; ++i) ASSERT_EQ(output[i], round + static_cast<int>(i));
  }
}

TEST(Graph, MayBeDestroyedWhileItRuns) {
  Gate gate;
  StreamHandle stream;
  DeviceInts data(10);
  {
    StreamHandle captured;
    GraphHandle graph;
    ASSERT_CUDA(begin(captured));
    ASSERT_CUDA(cudaMemsetAsync(data.get(), 1, data.bytes(), captured));
    graph.end(captured);
    gate.hold(stream);
    graph.launch(stream);
  }
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(data.values(), std::vector<int>(10, 0x01010101));
}

TEST(Graph, AnEmptyOneRunsToo) {
  StreamHandle stream;
  ASSERT_CUDA(begin(stream));
  GraphHandle graph;
  graph.end(stream);
  EXPECT_EQ(graph.nodes(), 0u);
  graph.launch(stream);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
}

TEST(Capture, SynchronisingIsUnsupportedAndSpoilsIt) {
  StreamHandle stream;
  ASSERT_CUDA(begin(stream, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA_ERROR(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  cudaStreamCaptureStatus status;
  ASSERT_CUDA(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  EXPECT_CUDA_ERROR(cudaLaunchHostFunc(stream, add_one, &status), cudaErrorStreamCaptureInvalidated);
  expect_end(stream, cudaErrorStreamCaptureInvalidated);
  ASSERT_CUDA(begin(stream, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA_ERROR(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  expect_end(stream, cudaErrorStreamCaptureInvalidated);
}

TEST(Capture, OfABlockingStreamForbidsTheDefaultStream) {
  StreamHandle stream(cudaStreamDefault);
  int counter = 0;
  ASSERT_CUDA(begin(stream));
  EXPECT_CUDA_ERROR(cudaLaunchHostFunc(nullptr, add_one, &counter), cudaErrorStreamCaptureImplicit);
  expect_end(stream, cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(counter, 0);
}

TEST(Capture, OfTheDefaultStreamIsUnsupported) {
  EXPECT_CUDA_ERROR(begin(nullptr), cudaErrorStreamCaptureUnsupported);
}

TEST(Capture, InGlobalModeForbidsAllocation) {
  StreamHandle stream;
  void* data = nullptr;
  ASSERT_CUDA(begin(stream, cudaStreamCaptureModeGlobal));
  EXPECT_CUDA_ERROR(cudaMalloc(&data, 64), cudaErrorStreamCaptureUnsupported);
  expect_end(stream, cudaErrorStreamCaptureInvalidated);
}

TEST(Capture, AThreadMayExchangeItsModeToAllocate) {
  StreamHandle stream;
  void* data = nullptr;
  ASSERT_CUDA(begin(stream, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  EXPECT_CUDA(cudaMalloc(&data, 64));
  ASSERT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  GraphHandle graph;
  graph.end(stream);
  EXPECT_CUDA(cudaFree(data));
}

TEST(Capture, InThreadLocalModeLeavesOtherThreadsAlone) {
  StreamHandle stream;
  ASSERT_CUDA(begin(stream, cudaStreamCaptureModeThreadLocal));
  std::thread([] {
    void* data = nullptr;
    EXPECT_CUDA(cudaMalloc(&data, 64));
    EXPECT_CUDA(cudaFree(data));
  }).join();
  GraphHandle graph;
  graph.end(stream);
}

TEST(Capture, EndsInTheThreadAndTheStreamThatBeganIt) {
  StreamHandle stream, branch;
  EventHandle fork, join;
  ASSERT_CUDA(begin(stream));
  cudaStream_t raw = stream;
  std::thread([raw] { expect_end(raw, cudaErrorStreamCaptureWrongThread); }).join();
  ASSERT_CUDA(cudaEventRecord(fork, stream));
  ASSERT_CUDA(cudaStreamWaitEvent(branch, fork));
  expect_end(branch, cudaErrorStreamCaptureUnmatched);
  expect_end(stream, cudaErrorStreamCaptureInvalidated);
  expect_end(stream, cudaErrorIllegalState);
}

TEST(Capture, WorkThatWasForkedMustBeJoined) {
  StreamHandle stream, branch;
  EventHandle fork;
  int counter = 0;
  ASSERT_CUDA(begin(stream));
  ASSERT_CUDA(cudaEventRecord(fork, stream));
  ASSERT_CUDA(cudaStreamWaitEvent(branch, fork));
  ASSERT_CUDA(cudaLaunchHostFunc(branch, add_one, &counter));
  expect_end(stream, cudaErrorStreamCaptureUnjoined);
}

TEST(Capture, MayNotDependOnUncapturedWork) {
  StreamHandle stream, other;
  EventHandle event;
  ASSERT_CUDA(cudaEventRecord(event, other));
  ASSERT_CUDA(begin(stream));
  EXPECT_CUDA_ERROR(cudaStreamWaitEvent(stream, event), cudaErrorStreamCaptureIsolation);
  expect_end(stream, cudaErrorStreamCaptureInvalidated);
}

TEST(Capture, TwoOfThemMayNotMerge) {
  StreamHandle first, second;
  EventHandle event;
  ASSERT_CUDA(begin(first));
  ASSERT_CUDA(begin(second));
  ASSERT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA_ERROR(cudaStreamWaitEvent(second, event), cudaErrorStreamCaptureMerge);
  expect_end(second, cudaErrorStreamCaptureInvalidated);
  expect_end(first, cudaErrorStreamCaptureInvalidated);
}

TEST(Capture, ItsEventsCannotBeAskedOrWaitedForByTheHost) {
  StreamHandle stream;
  EventHandle event;
  ASSERT_CUDA(begin(stream, cudaStreamCaptureModeRelaxed));
  ASSERT_CUDA(cudaEventRecord(event, stream));
  EXPECT_CUDA_ERROR(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  expect_end(stream, cudaErrorStreamCaptureInvalidated);
  ASSERT_CUDA(cudaEventRecord(event, stream));
  EXPECT_CUDA(cudaEventSynchronize(event));
}
