// Streams, and the workers that run them. A stream is an in-order queue of items; each device has a few
// workers, and a free one takes a ready stream and runs its items until it is empty or must wait. Waiting
// never holds a worker: the stream is put aside and becomes ready again when what it waits for is reached.
// All scheduling state is under one lock, which is held for a few dozen instructions and never while an item
// runs.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hostcuda/src/runtime/lock.h"
#include "hostcuda/src/runtime/race.h"

namespace hostcuda {

struct Capture;
struct Operation;
struct Device;
struct SharedJob;

// What an item does. Runs in its stream's order; an exception or a returned error is a failed launch.
class Work {
 public:
  virtual ~Work() = default;
  virtual const char* name() const = 0;
  virtual cudaError_t run(Device& device) = 0;
  // Bookkeeping right before run, by the worker itself: it may take locks, but touches no user's memory.
  virtual void prepare() {}
  // The devices whose memory it needs beside its own device's and that one's peers (bit d: device d).
  virtual uint64_t memory_of() const { return 0; }
  // What it is to a forecast; null for what takes a device no time.
  virtual const Operation* operation() const { return nullptr; }
  // For a graph launch: the items to run in place of this one.
  virtual const std::vector<struct Item>* expand() { return nullptr; }
};

// A point in a stream, which streams and host threads wait for.
struct Marker {
  explicit Marker(bool is_timed = false) : timed(is_timed) {}
  bool reached() const { return state.load(std::memory_order_acquire) != 0; }

  // First, so that the marker's address, which stands for it in race.h, is not also that of an atomic:
  // storing to one would replace what the thread sanitizer remembers there.
  const bool timed;
  std::chrono::steady_clock::time_point time;
  std::atomic<uint32_t> state{0};  // 1 once reached
  std::atomic<uint32_t> sleepers{0};
  std::vector<CUstream_st*> waiting;      // streams; under the lock
  const CUstream_st* recorded = nullptr;  // where, for reports
};

struct Item {
  enum class Kind { work, host_function, record, wait, graph, program };
  Kind kind = Kind::work;
  bool owned = true;  // work is deleted once it ran; a graph's nodes are not
  Work* work = nullptr;
  const char* name = nullptr;                  // of the work
  std::shared_ptr<Marker> marker;              // record, wait
  const std::vector<Item>* program = nullptr;  // program: a graph's items for this stream
  uint64_t sequence = 0;
};

// Workers with nothing to do, under the lock.
struct Idle {
  int spinning = 0;
  int sleeping = 0;
  std::atomic<uint32_t> signal{0};  // counts up with everything new to do; they sleep on it
};

// A device as its workers see it. Everything without a comment is under the lock.
struct Device {
  int ordinal = 0;
  std::atomic<cudaError_t> error{cudaSuccess};  // sticky: once it is set, operations are skipped
  std::atomic<uint64_t> peers{0};               // bit d: access to the memory of device d is enabled
  CUstream_st* legacy = nullptr;
  std::vector<CUstream_st*> streams;  // all that exist or still have work, the legacy one included
  std::deque<CUstream_st*> ready;
  std::vector<SharedJob*> jobs;
  bool started = false;
  int running = 0;    // workers inside a stream
  Idle idle;          // the workers that take streams
  Idle idle_helpers;  // those that only take slices of jobs
};

// So many workers of a device take streams at most, the others only help them with what they share. A library
// that runs in several threads keeps a set of them for each thread that calls it: with n workers that all do,
// n * n threads.
inline constexpr int kMostStreamsAtOnce = 4;

// The whole state, made at the first CUDA call and never destroyed: workers outlive main.
struct Scheduler {
  SpinLock lock;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<CUstream_st*> unused;  // destroyed and empty, to be used again
  uint64_t sequence = 0;             // of the last item
  // Checked mode: items up to `released` may run; streams in `held` have come to one that may not.
  std::atomic<uint64_t> released{0};
  std::vector<CUstream_st*> held;
  std::mutex turn;  // checked mode: held while an operation runs
  bool stopping = false;
};

Scheduler& scheduler();

// From now on exit waits for running work before it destroys what was made up to now.
void wait_for_work_at_exit();

Device& device_at(int ordinal);

// The scheduler's lock. Wakes, once it is released, the workers that became needed meanwhile.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  void wake_worker_of(const Device& device) { wake_ |= uint64_t{1} << device.ordinal; }

 private:
  uint64_t wake_ = 0;
};

CUstream_st* create_stream(int device, unsigned flags, bool internal);
void destroy_stream(CUstream_st* stream);  // what is enqueued still completes

// Appends to a stream, after what the legacy default stream's rules put before it.
void enqueue(Hold& hold, CUstream_st& stream, Item item);
void enqueue_work(CUstream_st& stream, Work* work, Item::Kind kind = Item::Kind::work);
// Appends to a stream and nothing else: for the scheduler and for graphs.
void append(Hold& hold, CUstream_st& stream, Item item);
// A marker behind everything enqueued on the stream so far.
std::shared_ptr<Marker> tail_marker(Hold& hold, CUstream_st& stream);

// Blocks the host until the marker is reached or HOSTCUDA_TIMEOUT has passed: then says on stderr which
// streams wait for what, and the device's error becomes cudaErrorLaunchTimeout.
cudaError_t wait_for(const Marker& marker, Device& device);
// Likewise for everything enqueued so far on the device's streams.
cudaError_t wait_for_device(Device& device);
// Checked mode: what is enqueued by now may start.
void release_work();
// Under the lock: does the stream order what is enqueued elsewhere? To the race detector even work that is
// done still does.
bool has_work(const CUstream_st& stream);

// Makes `error` the device's sticky error, unless it has one.
void fail(Device& device, cudaError_t error);
// The operation that this thread is in, where CUDA calls are not permitted; else null.
const char* operation_of_this_thread();

// The loop of a device's worker (worker.cc), which takes streams or only helps. Never returns.
void work_forever(Device& device, bool takes_streams);
// Likewise for one stream, in the race detector's build: what is thread_local is then the stream's own.
void run_forever(CUstream_st& stream);
// Makes a stream that is not in a queue ready to be taken by a worker.
void make_ready(Hold& hold, CUstream_st& stream);
// Spins for a few microseconds, unless too many threads spin already, until `word` differs from `seen`.
void spin_while(const std::atomic<uint32_t>& word, uint32_t seen);

}  // namespace hostcuda

struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  bool internal = false;  // of a graph
  bool alive = true;      // not destroyed
  bool legacy = false;

  enum class State { idle, ready, running, blocked, held, host_function };
  // Under the scheduler's lock.
  State state = State::idle;
  bool used = false;
  std::vector<hostcuda::Item> incoming;
  std::atomic<uint32_t> arrived{0};                // the size of `incoming`, for a look without the lock
  std::shared_ptr<hostcuda::Marker> tail;          // the last item, where that is a record
  std::shared_ptr<hostcuda::Marker> after_legacy;  // the legacy stream's marker that it last waited for
  std::shared_ptr<hostcuda::Marker> blocked_on;

  // Of whoever runs the stream.
  std::vector<hostcuda::Item> current;
  size_t cursor = 0;
  const std::vector<hostcuda::Item>* program = nullptr;  // while a graph is replayed: its items
  size_t program_cursor = 0;
  std::atomic<const char*> doing{nullptr};

  // The race detector's build: the stream's own thread, which outlives it and serves the next
  // one.
  bool has_thread = false;
  std::atomic<uint32_t> signal{0};

  // Under the capture lock (capture.cc).
  std::shared_ptr<hostcuda::Capture> capture;
  std::vector<int> frontier;  // the nodes that the next one depends on
};
