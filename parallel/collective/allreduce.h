// Allreduce: afterwards every buffer holds the sum of all. The algorithm is a plan
// (parallel/collective/plan.h, where the ring is); this file carries plans out with peer copies and kernels
// on streams, in the order that their schedule gives (parallel/collective/schedule.h).
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/collective/plan.h"
#include "parallel/collective/schedule.h"

namespace lockstep::collective {

// What all elements at one index become. A mean is the sum times 1 / ranks.
enum class Reduction { sum, mean, max, min };

// Calls f with a value of the element type, which must be one that is summed: float32, bfloat16, float16 or
// int32.
template <typename F>
auto for_summed_type(DType dtype, F f) {
  switch (dtype) {
    case DType::bfloat16:
      return f(__nv_bfloat16());
    case DType::int32:
      return f(int32_t{});
    case DType::float16:
      return f(__half());
    default:
      return f(float{});
  }
}

// Writes the sum of all elements of `data` into every one of them (float32, bfloat16, float16 or int32, one
// shape, each on a device of its own; rank i is data[i]). Half types are added in float, and rounded after
// each addition, or once where the plan is fused. It takes part in the order of the devices' compute streams
// like any other operation: the caller enqueues before and after it and waits for nothing. For given ranks
// and count the order of the sums is fixed: the same bits in every buffer, on every run, for every mapping of
// logical devices to physical ones. Throws before anything is enqueued where the buffers do not fit together,
// naming the one. The chapter's `allreduce` (Dive into Deep Learning, "Training on Multiple GPUs").
void allreduce(const std::vector<Tensor>& data, Algorithm algorithm = ring,
               Reduction reduction = Reduction::sum);

// What the function above keeps for a list of devices: schedules, streams, events, memory to receive in. May
// be captured in a CUDA graph when all devices' compute streams take part in the capture; run it once before,
// to prepare.
class Allreduce {
 public:
  explicit Allreduce(const std::vector<Device>& devices, Algorithm algorithm = ring);

  // data[i] lies on devices[i]. Any thread may call; what one call enqueues stays together. A mean of int32
  // is refused.
  void operator()(const std::vector<Tensor>& data, Reduction reduction = Reduction::sum);

 private:
  // A stream on a rank's device, with memory for what the rank cannot read where it lies.
  struct Lane {
    cudaStream_t stream;
    std::optional<Stream> own = {};     // empty: it is the device's compute stream
    std::vector<Tensor> received = {};  // bytes; the last is in use; a captured graph may use the others
  };
  // What it takes to run the plan for one count.
  struct Prepared {
    Schedule schedule;
    std::vector<Lane*> lanes;     // by stream of the schedule
    std::map<int, Event> events;  // by task, of those that another stream waits for
    bool fused = false;           // Plan::fused
  };
  struct Call {
    std::vector<std::byte*> buffers;
    DType dtype;
    Reduction reduction;
  };

  void check_data(const std::vector<Tensor>& data, Reduction reduction) const;
  const Prepared& prepared(int64_t count);
  void run(const Task& task, const Lane& lane, const Call& call) const;
  void transfer(const Transfer& t, const Lane& lane, const Call& call) const;
  void combine(int rank, Slice slice, const Lane& lane, const Call& call) const;
  void divide(const Call& call, int64_t count) const;
  void prepare_to_receive(const Task& task, Lane& lane) const;
  bool reads_in_place(int reader, int owner) const;

  const Algorithm algorithm_;
  const std::vector<Device> devices_;
  std::vector<std::deque<Lane>> lanes_;  // by rank; the first is the compute stream
  std::map<int64_t, Prepared> prepared_;
  std::mutex mutex_;
};

}  // namespace lockstep::collective
