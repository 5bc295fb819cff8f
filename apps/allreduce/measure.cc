#include "apps/allreduce/measure.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>

#include "core/handle.h"
#include "core/peer.h"
#include "kernels/check.h"
#include "kernels/float_types.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kGuard = 64;  // elements before and behind a buffer
constexpr uint8_t kGuardByte = 0x5a;

// Small integers: their sums over up to 64 ranks are exact in every type.
int value_of(int rank, int64_t i) {
  return static_cast<int>((i * 5 + rank * 3) % 9) - 4;
}

template <typename T>
T as(float value) {
  if constexpr (std::is_same_v<T, int32_t>)
    return static_cast<int32_t>(value);
  else
    return kernels::from_float<T>(value);
}

float expected(int64_t i, int ranks, collective::Reduction reduction) {
  using collective::Reduction;
  int sum = 0, most = value_of(0, i), least = most;
  for (int rank = 0; rank < ranks; ++rank) {
    const int value = value_of(rank, i);
    sum += value;
    most = std::max(most, value);
    least = std::min(least, value);
  }
  switch (reduction) {
    case Reduction::max:
      return static_cast<float>(most);
    case Reduction::min:
      return static_cast<float>(least);
    case Reduction::mean:
      return static_cast<float>(sum) * (1.0f / static_cast<float>(ranks));
    default:
      return static_cast<float>(sum);
  }
}

// A guarded buffer of rank `rank` on the host.
template <typename T>
std::vector<T> guarded(int rank, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count + 2 * kGuard));
  std::memset(static_cast<void*>(values.data()), kGuardByte, values.size() * sizeof(T));
  for (int64_t i = 0; i < count; ++i) values[i + kGuard] = as<T>(static_cast<float>(value_of(rank, i)));
  return values;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

AllreduceBench::AllreduceBench(const AllreduceCase& of, const AllreduceRuns& runs)
    : case_(of), runs_(runs), reduce_(of.devices, collective::algorithm_named(of.algorithm, "--algorithm")) {
  for (auto* all : {&whole_, &source_whole_})
    for (const Device& device : case_.devices)
      all->push_back(Tensor::empty({case_.count + 2 * kGuard}, device, case_.dtype));
  for (size_t r = 0; r < case_.devices.size(); ++r) {
    data_.push_back(whole_[r].slice(kGuard, kGuard + case_.count));
    source_.push_back(source_whole_[r].slice(kGuard, kGuard + case_.count));
  }
}

AllreduceTime AllreduceBench::in_place() {
  return measure(false);
}

AllreduceTime AllreduceBench::out_of_place() {
  return measure(true);
}

AllreduceTime AllreduceBench::measure(bool copies_first) {
  AllreduceTime result;
  fill();
  enqueue(copies_first);
  synchronize();
  result.wrong = runs_.check ? wrong_elements(whole_, case_.count, case_.reduction) : -1;
  const double seconds = runs_.graph ? time_graph(copies_first) : time_calls(copies_first);
  result.microseconds = seconds * 1e6 / runs_.iterations / runs_.aggregate;
  return result;
}

void AllreduceBench::enqueue(bool copies_first) {
  if (copies_first)
    for (size_t r = 0; r < data_.size(); ++r) {
      const DeviceGuard guard(case_.devices[r]);
      peer_copy(collective::for_summed_type(
                    case_.dtype, [&]<typename T>(T) { return static_cast<void*>(data_[r].data<T>()); }),
                case_.devices[r],
                collective::for_summed_type(
                    case_.dtype, [&]<typename T>(T) { return static_cast<void*>(source_[r].data<T>()); }),
                case_.devices[r], case_.count * size_of(case_.dtype), case_.devices[r].stream());
    }
  reduce_(data_, case_.reduction);
}

double AllreduceBench::time_calls(bool copies_first) {
  for (int i = 0; i < runs_.warm_up * runs_.aggregate; ++i) enqueue(copies_first);
  synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < runs_.iterations * runs_.aggregate; ++i) enqueue(copies_first);
  synchronize();
  return seconds_since(start);
}

double AllreduceBench::time_graph(bool copies_first) {
  const std::vector<Device>& devices = case_.devices;
  const cudaStream_t first = devices[0].stream();
  std::vector<Event> events;
  for (const Device& device : devices) {
    const DeviceGuard guard(device);
    events.emplace_back();
  }
  LOCKSTEP_CUDA(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
  events[0].record(first);
  for (size_t r = 1; r < devices.size(); ++r) devices[r].wait(events[0]);
  for (int i = 0; i < runs_.aggregate; ++i) enqueue(copies_first);
  for (size_t r = 1; r < devices.size(); ++r) {
    events[r].record(devices[r].stream());
    devices[0].wait(events[r]);
  }
  cudaGraph_t graph = nullptr;
  LOCKSTEP_CUDA(cudaStreamEndCapture(first, &graph));
  const Handle<cudaGraph_t, cudaGraphDestroy> owned_graph(graph);
  cudaGraphExec_t exec = nullptr;
  LOCKSTEP_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  const Handle<cudaGraphExec_t, cudaGraphExecDestroy> owned_exec(exec);
  for (int i = 0; i < runs_.warm_up; ++i) LOCKSTEP_CUDA(cudaGraphLaunch(exec, first));
  synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < runs_.iterations; ++i) LOCKSTEP_CUDA(cudaGraphLaunch(exec, first));
  synchronize();
  return seconds_since(start);
}

void AllreduceBench::fill() {
  for (size_t r = 0; r < data_.size(); ++r) {
    const Tensor filled = guarded_buffer(static_cast<int>(r), case_.count, case_.dtype, case_.devices[r]);
    whole_[r].copy_from(filled);
    source_whole_[r].copy_from(filled);
  }
}

Tensor guarded_buffer(int rank, int64_t count, DType dtype, const Device& device) {
  return collective::for_summed_type(dtype, [&]<typename T>(T) {
    return Tensor::from_host(guarded<T>(rank, count), {count + 2 * kGuard}, device);
  });
}

int64_t wrong_elements(const std::vector<Tensor>& buffers, int64_t count, collective::Reduction reduction) {
  const int ranks = static_cast<int>(buffers.size());
  int64_t wrong = 0;
  collective::for_summed_type(buffers.front().dtype(), [&]<typename T>(T) {
    std::vector<T> want = guarded<T>(0, count);
    for (int64_t i = 0; i < count; ++i) want[i + kGuard] = as<T>(expected(i, ranks, reduction));
    for (const Tensor& buffer : buffers) {
      const std::vector<T> got = buffer.to_host<T>();
      const auto of = [](const T& value) { return std::as_bytes(std::span(&value, 1)); };
      for (size_t i = 0; i < got.size(); ++i) wrong += !std::ranges::equal(of(got[i]), of(want[i]));
    }
  });
  return wrong;
}

void AllreduceBench::synchronize() const {
  for (const Device& device : case_.devices) device.synchronize();
}

double algorithm_bandwidth(int64_t bytes, double microseconds) {
  return static_cast<double>(bytes) / microseconds / 1e3;
}

double bus_bandwidth(int64_t bytes, double microseconds, int ranks) {
  return algorithm_bandwidth(bytes, microseconds) * 2 * (ranks - 1) / ranks;
}

}  // namespace lockstep::apps
