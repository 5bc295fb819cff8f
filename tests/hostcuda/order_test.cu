// Streams, events, devices and graphs in a random arrangement, against a serial oracle. Every operation
// appends to a buffer what it has read from others, so any operation that runs too early or too late changes
// the result.
#include <random>

#include "kernels/launch.cuh"
#include "tests/hostcuda/cuda_objects.h"

using lockstep::kernels::launch;

namespace {

// What the oracle does too: mixes one number into another, order mattering.
__host__ __device__ inline unsigned mixed(unsigned into, unsigned value, unsigned salt) {
  return into * 2654435761u + (value ^ salt) * 40503u + 1;
}

__global__ void mix(unsigned* into, const unsigned* from, unsigned salt) {
  *into = mixed(*into, *from, salt);
}

constexpr int kStreams = 6, kBuffers = 10, kOperations = 400;

// Buffers on device 0 (mix kernels need them at hand), streams all on device 0; with an event after every use
// of a buffer, each operation waits for exactly what it must: the last writer and the readers since.
class Arrangement {
 public:
  explicit Arrangement(unsigned seed) : random_(seed) {
    for (int i = 0; i < kStreams; ++i)
      streams_.push_back(
          std::make_unique<StreamHandle>(i % 2 == 0 ? cudaStreamNonBlocking : cudaStreamDefault));
    for (int i = 0; i < kBuffers; ++i) {
      buffers_.push_back(std::make_unique<DeviceInts>(1));
      buffers_.back()->set({i});
      oracle_.push_back(static_cast<unsigned>(i));
    }
    users_.resize(kBuffers);
  }

  // Enqueues the operations on the streams; in a capture all streams fork from the first and join it at the
  // end.
  void enqueue(bool captured) {
    if (captured) {
      cudaEvent_t fork = event(0);
      for (int i = 1; i < kStreams; ++i)
        ASSERT_CUDA(cudaStreamWaitEvent(*streams_[static_cast<size_t>(i)], fork));
    }
    for (int i = 0; i < kOperations; ++i) {
      const int stream = pick(kStreams), into = pick(kBuffers), from = pick(kBuffers);
      const unsigned salt = static_cast<unsigned>(pick(1000));
      for (const int buffer : {into, from})
        for (const Use& use : users_[static_cast<size_t>(buffer)])
          if (use.stream != stream)
            ASSERT_CUDA(cudaStreamWaitEvent(*streams_[static_cast<size_t>(stream)], use.done));
      launch(mix, dim3(1), dim3(1), 0, static_cast<cudaStream_t>(*streams_[static_cast<size_t>(stream)]),
             data(into), static_cast<const unsigned*>(data(from)), salt);
      cudaEvent_t done = event(stream);
      users_[static_cast<size_t>(from)].push_back({stream, done});
      users_[static_cast<size_t>(into)] = {{stream, done}};
      operations_.push_back({into, from, salt});
    }
    if (captured)
      for (int i = 1; i < kStreams; ++i) ASSERT_CUDA(cudaStreamWaitEvent(*streams_[0], event(i)));
  }

  void run_oracle() {
    for (const Operation& operation : operations_) {
      unsigned& into = oracle_[static_cast<size_t>(operation.into)];
      into = mixed(into, oracle_[static_cast<size_t>(operation.from)], operation.salt);
    }
  }

  void expect_oracle() {
    for (size_t i = 0; i < kBuffers; ++i)
      EXPECT_EQ(static_cast<unsigned>(buffers_[i]->values()[0]), oracle_[i]) << "buffer " << i;
  }

  cudaStream_t first_stream() { return *streams_[0]; }

 private:
  struct Use {
    int stream;
    cudaEvent_t done;
  };
  struct Operation {
    int into, from;
    unsigned salt;
  };
  int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  unsigned* data(int buffer) {
    return reinterpret_cast<unsigned*>(buffers_[static_cast<size_t>(buffer)]->get());
  }
  cudaEvent_t event(int stream) {
    events_.push_back(std::make_unique<EventHandle>());
    EXPECT_CUDA(cudaEventRecord(*events_.back(), *streams_[static_cast<size_t>(stream)]));
    return *events_.back();
  }

  std::mt19937 random_;
  std::vector<std::unique_ptr<StreamHandle>> streams_;
  std::vector<std::unique_ptr<EventHandle>> events_;
  std::vector<std::unique_ptr<DeviceInts>> buffers_;
  std::vector<std::vector<Use>> users_;
  std::vector<Operation> operations_;
  std::vector<unsigned> oracle_;
};

}  // namespace

TEST(Order, RandomDependenciesBetweenStreamsHold) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Arrangement arrangement(seed);
    arrangement.enqueue(false);
    ASSERT_CUDA(cudaDeviceSynchronize());
    arrangement.run_oracle();
    arrangement.expect_oracle();
  }
}

TEST(Order, RandomDependenciesHoldInEveryReplayOfAGraph) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Arrangement arrangement(seed);
    ASSERT_CUDA(cudaStreamBeginCapture(arrangement.first_stream(), cudaStreamCaptureModeGlobal));
    arrangement.enqueue(true);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_CUDA(cudaStreamEndCapture(arrangement.first_stream(), &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int replay = 0; replay < 10; ++replay) {
      ASSERT_CUDA(cudaGraphLaunch(exec, arrangement.first_stream()));
      arrangement.run_oracle();
    }
    ASSERT_CUDA(cudaStreamSynchronize(arrangement.first_stream()));
    arrangement.expect_oracle();
    ASSERT_CUDA(cudaGraphExecDestroy(exec));
    ASSERT_CUDA(cudaGraphDestroy(graph));
  }
}

TEST(Order, HostThreadsMayEnqueueAtTheSameTime) {
  constexpr int kThreads = 4, kTimes = 500;
  DeviceInts data(kThreads);
  data.set(std::vector<int>(kThreads));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      StreamHandle stream;
      unsigned* const mine = reinterpret_cast<unsigned*>(data.get() + t);
      for (int i = 0; i < kTimes; ++i) {
        launch(mix, dim3(1), dim3(1), 0, static_cast<cudaStream_t>(stream), mine,
               static_cast<const unsigned*>(mine), static_cast<unsigned>(i));
        if (i % 100 == 0) EXPECT_CUDA(cudaStreamSynchronize(stream));
      }
      EXPECT_CUDA(cudaStreamSynchronize(stream));
    });
  for (std::thread& thread : threads) thread.join();
  unsigned wanted = 0;
  for (int i = 0; i < kTimes; ++i) wanted = mixed(wanted, wanted, static_cast<unsigned>(i));
  for (const int value : data.values()) EXPECT_EQ(static_cast<unsigned>(value), wanted);
}
