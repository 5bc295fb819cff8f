#include "hostcuda/src/runtime/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <system_error>
#include <thread>

#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"
#include "hostcuda/src/runtime/report.h"

namespace hostcuda {
namespace {

std::atomic<int> spinners{0};

int spinners_allowed() {
  static const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1);
  return cores;
}

// The deadline of a wait. It counts in slices, so that time in which the whole process was stopped (Ctrl-Z, a
// debugger) is one slice at most: what is waited for stood still as well.
class Patience {
 public:
  // Seconds to wait now, before asking again: 0 once HOSTCUDA_TIMEOUT is used up.
  double slice() {
    const auto now = std::chrono::steady_clock::now();
    left_ -= std::min(std::chrono::duration<double>(now - asked_).count(), kSlice);
    asked_ = now;
    return std::clamp(left_, 0.0, kSlice);
  }

 private:
  static constexpr double kSlice = 0.1;
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
  double left_ = config().timeout;
};

// Ends the process at once: other threads run on, so nothing may be destroyed under them.
[[noreturn]] void end_now(const char* who, const char* what) {
  std::fprintf(stderr, "hostcuda: %s: %s\n", who, what);
  std::fflush(stdout);
  std::_Exit(EXIT_FAILURE);
}

// At exit, operations that run are let finish, since what they use is about to be destroyed; nothing new
// starts. A device that timed out is not waited for again. An operation that calls exit itself, as OpenMP
// does where it gets no thread, would wait for its own end.
void stop_at_exit() {
  if (const char* operation = operation_of_this_thread())
    end_now(operation,
            "a library ended the program: allow it more memory and threads (ulimit -v, ulimit -u), or use "
            "a smaller HOSTCUDA_THREADS");
  Patience patience;
  for (bool busy = true; busy && patience.slice() > 0;) {
    busy = false;
    {
      Hold hold;
      scheduler().stopping = true;
      for (const auto& device : scheduler().devices)
        busy |= device->running > 0 && device->error != cudaErrorLaunchTimeout;
    }
    if (busy) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

Scheduler* make_scheduler() {
  auto* made = new Scheduler;
  for (int ordinal = 0; ordinal < config().devices; ++ordinal) {
    made->devices.push_back(std::make_unique<Device>());
    Device& device = *made->devices.back();
    device.ordinal = ordinal;
    device.legacy = new CUstream_st;
    device.legacy->device = ordinal;
    device.legacy->legacy = true;
    device.streams.push_back(device.legacy);
  }
  std::atexit(stop_at_exit);
  return made;
}

}  // namespace

void wait_for_work_at_exit() {
  std::atexit(stop_at_exit);
}

namespace {

Item wait_item(std::shared_ptr<Marker> marker) {
  Item item;
  item.kind = Item::Kind::wait;
  item.marker = std::move(marker);
  return item;
}

// The legacy default stream waits for all blocking streams of its device, and they wait for it.
void order_with_legacy(Hold& hold, CUstream_st& stream) {
  Device& device = device_at(stream.device);
  if (stream.legacy) {
    for (CUstream_st* const other : device.streams) {
      if (other->legacy || other->internal || (other->flags & cudaStreamNonBlocking) != 0 ||
          !has_work(*other))
        continue;
      append(hold, stream, wait_item(tail_marker(hold, *other)));
    }
  } else if ((stream.flags & cudaStreamNonBlocking) == 0 && has_work(*device.legacy)) {
    std::shared_ptr<Marker> marker = tail_marker(hold, *device.legacy);
    if (stream.after_legacy == marker) return;
    stream.after_legacy = marker;
    append(hold, stream, wait_item(std::move(marker)));
  }
}

void describe_streams(double seconds) {
  std::fprintf(stderr, "hostcuda: waited %g s (HOSTCUDA_TIMEOUT) for:\n", seconds);
  for (const auto& device : scheduler().devices) {
    for (const CUstream_st* stream : device->streams) {
      if (stream->state == CUstream_st::State::idle) continue;
      std::fprintf(stderr, "hostcuda:   %s %p of device %d, ",
                   stream->internal ? "graph stream" : (stream->legacy ? "default stream" : "stream"),
                   static_cast<const void*>(stream), device->ordinal);
      const char* doing = stream->doing.load();
      if (stream->state == CUstream_st::State::blocked)
        std::fprintf(stderr, "which waits for an event on stream %p\n",
                     static_cast<const void*>(stream->blocked_on->recorded));
      else if (stream->state == CUstream_st::State::held)
        std::fprintf(stderr, "which waits for the host to synchronise\n");
      else if (doing != nullptr)
        std::fprintf(stderr, "which is in %s\n", doing);
      else
        std::fprintf(stderr, "which waits for a free worker\n");
    }
  }
}

}  // namespace

bool has_work(const CUstream_st& stream) {
  return race::kDetected ? stream.used : stream.state != CUstream_st::State::idle;
}

Scheduler& scheduler() {
  static Scheduler* const made = make_scheduler();
  return *made;
}

Device& device_at(int ordinal) {
  return *scheduler().devices[static_cast<size_t>(ordinal)];
}

Hold::Hold() {
  scheduler().lock.lock();
}

Hold::~Hold() {
  scheduler().lock.unlock();
  for (int ordinal = 0; wake_ != 0; ++ordinal, wake_ >>= 1)
    if ((wake_ & 1) != 0) futex_wake(device_at(ordinal).idle.signal, 1);
}

CUstream_st* create_stream(int device, unsigned flags, bool internal) {
  Hold hold;
  std::vector<CUstream_st*>& unused = scheduler().unused;
  const auto found = std::find_if(unused.begin(), unused.end(),
                                  [&](const CUstream_st* one) { return one->device == device; });
  CUstream_st* const stream = found == unused.end() ? new CUstream_st : *found;
  if (found != unused.end()) unused.erase(found);
  stream->device = device;
  stream->flags = flags;
  stream->internal = internal;
  stream->alive = true;
  stream->used = false;
  stream->tail.reset();
  stream->after_legacy.reset();
  device_at(device).streams.push_back(stream);
  return stream;
}

void destroy_stream(CUstream_st* stream) {
  Hold hold;
  stream->alive = false;
  append(hold, *stream, Item{});  // an empty item, so that the worker that finds the stream idle retires it
}

// What leaves a worker's loop is a shortage of memory for the scheduler's own lists: nobody could be told.
void run_worker(Device& device, bool takes_streams) {
  try {
    work_forever(device, takes_streams);
  } catch (...) {
    const cudaError_t error = error_of_exception("a worker");
    end_now("ended", cudaGetErrorString(error));
  }
}

// Those that could be started find the device failed and skip its work; without any, its waits end at once.
void start_workers(Device& device) {
  device.started = true;
  const int count = config().threads;
  int made = 0;
  try {
    for (; made < count; ++made)
      std::thread(run_worker, std::ref(device), made < kMostStreamsAtOnce).detach();
  } catch (const std::system_error&) {
    fail(device, error_of_exception(("worker " + std::to_string(made + 1) + " of " + std::to_string(count) +
                                     " of device " + std::to_string(device.ordinal))
                                        .c_str()));
  }
}

void make_ready(Hold& hold, CUstream_st& stream) {
  Device& device = device_at(stream.device);
  stream.state = CUstream_st::State::ready;
  if constexpr (race::kDetected) {
    if (!stream.has_thread) std::thread([&stream] { run_forever(stream); }).detach();
    stream.has_thread = true;
    stream.signal.fetch_add(1, std::memory_order_release);
    futex_wake(stream.signal, 1);
    return;
  }
  device.ready.push_back(&stream);
  device.idle.signal.fetch_add(1, std::memory_order_release);
  if (!device.started) {
    start_workers(device);
  } else if (device.idle.sleeping > 0 && device.ready.size() > static_cast<size_t>(device.idle.spinning)) {
    hold.wake_worker_of(device);
  }
}

void append(Hold& hold, CUstream_st& stream, Item item) {
  // A graph's part on another stream belongs to a launch that runs already: nothing holds it back.
  if (item.kind != Item::Kind::program) item.sequence = ++scheduler().sequence;
  stream.used = true;
  stream.tail = item.kind == Item::Kind::record ? item.marker : nullptr;
  stream.incoming.push_back(std::move(item));
  stream.arrived.store(static_cast<uint32_t>(stream.incoming.size()), std::memory_order_relaxed);
  if (stream.state == CUstream_st::State::idle) make_ready(hold, stream);
}

void enqueue(Hold& hold, CUstream_st& stream, Item item) {
  order_with_legacy(hold, stream);
  append(hold, stream, std::move(item));
}

void enqueue_work(CUstream_st& stream, Work* work, Item::Kind kind) {
  Item item;
  item.kind = kind;
  item.work = work;
  item.name = work->name();
  race::release(work);
  Hold hold;
  enqueue(hold, stream, std::move(item));
}

std::shared_ptr<Marker> tail_marker(Hold& hold, CUstream_st& stream) {
  if (stream.tail != nullptr) return stream.tail;
  Item item;
  item.kind = Item::Kind::record;
  item.marker = std::make_shared<Marker>();
  item.marker->recorded = &stream;
  std::shared_ptr<Marker> marker = item.marker;
  append(hold, stream, std::move(item));
  return marker;
}

void release_work() {
  if (!config().checked) return;
  Hold hold;
  scheduler().released = scheduler().sequence;
  for (CUstream_st* stream : scheduler().held) make_ready(hold, *stream);
  scheduler().held.clear();
}

void spin_while(const std::atomic<uint32_t>& word, uint32_t seen) {
  constexpr int kPauses = 1000, kYields = 20;
  if (spinners.fetch_add(1, std::memory_order_relaxed) < spinners_allowed()) {
    for (int i = 0; i < kPauses && word.load(std::memory_order_acquire) == seen; ++i) pause_core();
    for (int i = 0; i < kYields && word.load(std::memory_order_acquire) == seen; ++i) sched_yield();
  }
  spinners.fetch_sub(1, std::memory_order_relaxed);
}

cudaError_t wait_for(const Marker& marker, Device& device) {
  Marker& point = const_cast<Marker&>(marker);
  release_work();
  if (!point.reached()) spin_while(point.state, 0);
  Patience patience;
  while (!point.reached()) {
    if (device.error.load() == cudaErrorOperatingSystem) return device.error;  // perhaps it has no workers
    const double slice = patience.slice();
    if (slice == 0) {
      Hold hold;
      describe_streams(config().timeout);
      fail(device, cudaErrorLaunchTimeout);
      return device.error;
    }
    point.sleepers.fetch_add(1);
    futex_wait(point.state, 0, slice);
    point.sleepers.fetch_sub(1);
  }
  race::acquire(&marker);
  return device.error;
}

cudaError_t wait_for_device(Device& device) {
  std::vector<std::shared_ptr<Marker>> markers;
  {
    Hold hold;
    for (CUstream_st* const stream : device.streams)
      if (!stream->internal && has_work(*stream)) markers.push_back(tail_marker(hold, *stream));
  }
  for (const auto& marker : markers) {
    const cudaError_t error = wait_for(*marker, device);
    if (error != cudaSuccess) return error;
  }
  return device.error;
}

void fail(Device& device, cudaError_t error) {
  cudaError_t none = cudaSuccess;
  device.error.compare_exchange_strong(none, error);
}

}  // namespace hostcuda
