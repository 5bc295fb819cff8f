#include "core/stream.h"

#include "core/peer.h"
#include "kernels/check.h"

namespace lockstep {

cudaError_t end_stream(cudaStream_t stream) {
  free_peer_staging(stream);
  return cudaStreamDestroy(stream);
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  LOCKSTEP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  handle_ = Handle<cudaStream_t, end_stream>(stream);
}

void Stream::synchronize() const {
  LOCKSTEP_CUDA(cudaStreamSynchronize(get()));
}

void stream_wait(cudaStream_t stream, const Event& event) {
  LOCKSTEP_CUDA(cudaStreamWaitEvent(stream, event.get(), 0));
}

Event::Event(Timing timing) {
  cudaEvent_t event = nullptr;
  LOCKSTEP_CUDA(
      cudaEventCreateWithFlags(&event, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming));
  handle_ = Handle<cudaEvent_t, cudaEventDestroy>(event);
}

void Event::record(cudaStream_t stream) const {
  LOCKSTEP_CUDA(cudaEventRecord(get(), stream));
}

void Event::synchronize() const {
  LOCKSTEP_CUDA(cudaEventSynchronize(get()));
}

float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  LOCKSTEP_CUDA(cudaEventElapsedTime(&milliseconds, start.get(), get()));
  return milliseconds;
}

}  // namespace lockstep
