// What a device's workers do: take a ready stream and run its items until it is empty or must wait; with none
// ready, run slices of what another worker shares; with nothing to do at all, spin for a moment, then sleep.
#include <algorithm>
#include <cstdio>
#include <system_error>
#include <thread>

#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"
#include "hostcuda/src/runtime/report.h"
#include "hostcuda/src/runtime/scheduler.h"
#include "hostcuda/src/runtime/share.h"

namespace hostcuda {
namespace {

// Items that a worker runs of one stream before another ready stream gets its turn.
constexpr int kTurn = 32;

thread_local const char* inside = nullptr;  // this operation

cudaError_t run_guarded(Work& work, Device& device) {
  try {
    return work.run(device);
  } catch (...) {
    return error_of_exception(work.name());
  }
}

// Runs the work in its stream's order, and deletes what it owns there too: the memory of a closure is then
// ordered like what the closure does.
cudaError_t run_in_order(CUstream_st& stream, Device& device, Work* work, bool owned, bool skip) {
  race::acquire(work);
  cudaError_t error = cudaSuccess;
  {
    const race::Hidden seen(false);
    if (!skip) error = run_guarded(*work, device);
    if (owned) delete work;
  }
  race::release(&stream);
  return error;
}

void execute(CUstream_st& stream, Device& device, Item& item) {
  const bool skip = device.error.load(std::memory_order_relaxed) != cudaSuccess;
  const bool on_host = item.kind == Item::Kind::host_function;
  std::unique_lock<std::mutex> turn;
  const char* const name = item.name;
  if (config().checked && !on_host) {
    turn = std::unique_lock(scheduler().turn);
    set_accessible(item.work->memory_of() | device.peers | uint64_t{1} << device.ordinal);
  }
  if (!skip) item.work->prepare();
  stream.doing.store(name, std::memory_order_relaxed);
  inside = name;
  cudaError_t error = run_in_order(stream, device, item.work, item.owned, skip);
  inside = nullptr;
  stream.doing.store(nullptr, std::memory_order_relaxed);
  if (turn && !skip) {
    const std::string overrun = find_overruns();
    if (!overrun.empty()) {
      std::fprintf(stderr, "hostcuda: %s %s\n", name, overrun.c_str());
      error = cudaErrorIllegalAddress;
    }
  }
  if (error != cudaSuccess) fail(device, error);
}

// Steps past the item that was just run (or is about to signal that it was), and out of a graph at its end.
void advance(CUstream_st& stream) {
  if (stream.program != nullptr && ++stream.program_cursor < stream.program->size()) return;
  stream.program = nullptr;
  const Item& item = stream.current[stream.cursor++];
  if (item.kind == Item::Kind::graph) delete item.work;  // which may destroy the graph
}

Item& item_at_cursor(CUstream_st& stream) {
  if (stream.program != nullptr) return const_cast<Item&>((*stream.program)[stream.program_cursor]);
  return stream.current[stream.cursor];
}

void complete(const std::shared_ptr<Marker>& marker) {
  if (config().checked) {  // the host is about to be told: it may not touch device memory
    const std::lock_guard turn(scheduler().turn);
    set_accessible(0);
  }
  if (marker->timed) marker->time = std::chrono::steady_clock::now();
  {
    Hold hold;
    marker->state.store(1);
    for (CUstream_st* waiting : marker->waiting) {
      waiting->blocked_on.reset();
      make_ready(hold, *waiting);
    }
    marker->waiting.clear();
  }
  if (marker->sleepers.load() != 0) futex_wake(marker->state, 1 << 30);
}

// False where the stream was put aside until the marker is reached.
bool passes(CUstream_st& stream, const std::shared_ptr<Marker>& marker) {
  if (!marker->reached()) {
    Hold hold;
    if (!marker->reached()) {
      marker->waiting.push_back(&stream);
      stream.blocked_on = marker;
      stream.state = CUstream_st::State::blocked;
      return false;
    }
  }
  race::acquire(marker.get());
  return true;
}

// A host function may wait for anything, so it gets a thread of its own; its stream goes on when it returns.
// CUDA leaves open whether two of them run at the same time; HOSTCUDA_SERIAL_CALLBACKS=1 is the other answer.
void run_on_host_thread(CUstream_st& stream, Device& device) {
  {
    Hold hold;
    stream.state = CUstream_st::State::host_function;
  }
  const auto run = [&stream, &device] {
    {
      static std::mutex& turn = *new std::mutex;
      const auto taken = config().serial_callbacks ? std::unique_lock(turn) : std::unique_lock<std::mutex>();
      execute(stream, device, item_at_cursor(stream));
    }
    advance(stream);
    Hold hold;
    make_ready(hold, stream);
  };
  try {
    std::thread(run).detach();
  } catch (const std::system_error&) {
    fail(device, error_of_exception("a host function"));
    run();  // which skips the function, and lets whoever waits for the stream go on
  }
}

// An empty stream goes idle, and away where it was destroyed. False where items have arrived. Lingers a
// little, unless the device has something else to do: a host that enqueues one small operation after the
// other then finds the stream running, which is several times cheaper than making it ready each time.
bool goes_idle(CUstream_st& stream, Device& device) {
  constexpr int kLinger = 100;
  stream.current.clear();
  stream.cursor = 0;
  const std::atomic<uint32_t>& signal = device.idle.signal;
  const uint32_t seen = signal.load(std::memory_order_relaxed);
  for (int i = 0; i < kLinger && stream.arrived.load(std::memory_order_relaxed) == 0 &&
                  signal.load(std::memory_order_relaxed) == seen;
       ++i)
    pause_core();
  Hold hold;
  if (!stream.incoming.empty()) {
    std::swap(stream.current, stream.incoming);
    stream.arrived.store(0, std::memory_order_relaxed);
    return false;
  }
  stream.state = CUstream_st::State::idle;
  if (!stream.alive) {
    device.streams.erase(std::find(device.streams.begin(), device.streams.end(), &stream));
    scheduler().unused.push_back(&stream);
  }
  return true;
}

// Checked mode holds work back until the host synchronises.
bool is_held(CUstream_st& stream, const Item& item) {
  if (!config().checked || item.sequence <= scheduler().released) return false;
  Hold hold;
  if (item.sequence <= scheduler().released) return false;
  stream.state = CUstream_st::State::held;
  scheduler().held.push_back(&stream);
  return true;
}

bool others_are_ready(CUstream_st& stream, Device& device) {
  Hold hold;
  if (device.ready.empty() && !scheduler().stopping) return false;
  make_ready(hold, stream);
  return true;
}

void run_stream(CUstream_st& stream, Device& device) {
  for (int items = 1;; ++items) {
    if (stream.program == nullptr && stream.cursor == stream.current.size() && goes_idle(stream, device))
      return;
    Item& item = item_at_cursor(stream);
    if (is_held(stream, item)) return;
    if (items % kTurn == 0 && others_are_ready(stream, device)) return;
    switch (item.kind) {
      case Item::Kind::work:
        if (item.work != nullptr) execute(stream, device, item);
        advance(stream);
        break;
      case Item::Kind::host_function:
        if constexpr (!race::kDetected) {
          run_on_host_thread(stream, device);
          return;
        }
        execute(stream, device, item);  // on the stream's own thread
        advance(stream);
        break;
      case Item::Kind::record: {
        const std::shared_ptr<Marker> marker = item.marker;
        race::release(marker.get());
        advance(stream);  // first, since whoever waits may destroy the graph that this item is in
        complete(marker);
        break;
      }
      case Item::Kind::wait:
        if (!passes(stream, item.marker)) return;
        advance(stream);
        break;
      case Item::Kind::graph:
        race::acquire(item.work);
        stream.program = item.work->expand();
        stream.program_cursor = 0;
        if (stream.program->empty()) advance(stream);
        break;
      case Item::Kind::program:
        stream.program = item.program;
        stream.program_cursor = 0;
        break;
    }
  }
}

// The next ready stream; meanwhile, or for ever, slices of shared jobs.
CUstream_st* take_stream(Device& device, bool takes_streams) {
  Idle& idle = takes_streams ? device.idle : device.idle_helpers;
  for (;;) {
    uint32_t seen;
    SharedJob* job = nullptr;
    {
      Hold hold;
      if (takes_streams && !device.ready.empty() && !scheduler().stopping) {
        CUstream_st* stream = device.ready.front();
        device.ready.pop_front();
        stream->state = CUstream_st::State::running;
        ++device.running;
        return stream;
      }
      for (SharedJob* shared : device.jobs)
        if (shared->next.load(std::memory_order_relaxed) < shared->slices) job = shared;
      if (job != nullptr)
        job->helpers.fetch_add(1, std::memory_order_relaxed);
      else
        ++idle.spinning;
      seen = idle.signal.load(std::memory_order_relaxed);
    }
    if (job != nullptr) {
      help(*job);
      continue;
    }
    spin_while(idle.signal, seen);
    {
      Hold hold;
      --idle.spinning;
      if (idle.signal.load(std::memory_order_relaxed) != seen) continue;
      ++idle.sleeping;
    }
    futex_wait(idle.signal, seen, 3600);
    Hold hold;
    --idle.sleeping;
  }
}

}  // namespace

const char* operation_of_this_thread() {
  return inside;
}

void run_forever(CUstream_st& stream) {
  const race::Hidden hidden;
  Device& device = device_at(stream.device);
  for (uint32_t seen = 0;;) {
    bool ready;
    {
      Hold hold;
      seen = stream.signal.load(std::memory_order_relaxed);
      ready = stream.state == CUstream_st::State::ready && !scheduler().stopping;
      if (ready) {
        stream.state = CUstream_st::State::running;
        ++device.running;
      }
    }
    if (!ready) {
      futex_wait(stream.signal, seen, 3600);
      continue;
    }
    run_stream(stream, device);
    Hold hold;
    --device.running;
  }
}

void work_forever(Device& device, bool takes_streams) {
  for (;;) {
    CUstream_st* stream = take_stream(device, takes_streams);
    run_stream(*stream, device);
    Hold hold;
    --device.running;
  }
}

}  // namespace hostcuda
