// Streams and events that own what they wrap.
#pragma once

#include <cuda_runtime.h>

#include "core/handle.h"

namespace lockstep {

// Destroys a stream, with what peer copies on it have allocated.
cudaError_t end_stream(cudaStream_t stream);

class Event;

// Stream::wait, of a stream that somebody else owns.
void stream_wait(cudaStream_t stream, const Event& event);

// An in-order queue of device work, made on the current device; it does not synchronise with the legacy
// default stream.
class Stream {
 public:
  Stream();
  cudaStream_t get() const { return handle_.get(); }
  // What is enqueued from now on waits for what the event has recorded; the host does not.
  void wait(const Event& event) const { stream_wait(get(), event); }
  // Blocks the host until everything enqueued so far is done.
  void synchronize() const;

 private:
  Handle<cudaStream_t, end_stream> handle_;
};

// A point in a stream, made on the current device. `timed` events can be subtracted; the others are cheaper.
class Event {
 public:
  enum class Timing { off, on };
  explicit Event(Timing timing = Timing::off);
  cudaEvent_t get() const { return handle_.get(); }
  void record(cudaStream_t stream) const;
  void synchronize() const;
  // Milliseconds from `start` to this event, both timed, recorded and reached.
  float milliseconds_since(const Event& start) const;

 private:
  Handle<cudaEvent_t, cudaEventDestroy> handle_;
};

}  // namespace lockstep
