// Allreduce: afterwards every buffer holds the sum of all. The algorithm is a plan
// (parallel/collective/plan.h, where the ring is); this file carries plans out with peer copies and additions
// on streams.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "parallel/collective/plan.h"

namespace lockstep::collective {

// Writes the sum of all elements of `data` into every one of them (float32 or bfloat16, one shape, each on a
// device of its own; rank i is data[i]). Each addition is done in float and rounded to the type. It takes
// part in the order of the devices' compute streams like any other operation: the caller enqueues before and
// after it and waits for nothing. For given ranks and count the order of the sums is fixed: the same bits in
// every buffer, on every run, for every mapping of logical devices to physical ones. Throws before anything
// is enqueued where the buffers do not fit together, naming the one. The chapter's `allreduce` (Dive into
// Deep Learning, "Training on Multiple GPUs").
void allreduce(const std::vector<Tensor>& data, Algorithm algorithm = ring);

// What the function above keeps for a list of devices: streams, events, receive slots. May be captured in a
// CUDA graph when all devices' compute streams take part in the capture; run it once before, to prepare.
class Allreduce {
 public:
  explicit Allreduce(const std::vector<Device>& devices, Algorithm algorithm = ring);

  // data[i] lies on devices[i]. Any thread may call; what one call enqueues stays together.
  void operator()(const std::vector<Tensor>& data);

 private:
  // A participant. Everything that happens to its buffer passes through its stream.
  struct Rank {
    explicit Rank(const Device& on);
    Device device;
    Stream stream;   // the additions into this rank's buffer, in the plan's order
    Event given;     // on the compute stream: what the caller enqueued before
    Event finished;  // on `stream`: this rank's transfers of the rounds so far, in and out
  };

  // A directed pair of ranks.
  struct Link {
    Link(const Device& source, const Device& destination);
    void* slot() const { return slots.back().data<uint8_t>(); }
    Stream stream;              // the copies, on the source's device
    Event data_ready;           // on `stream`: a copy has arrived
    Event slot_free;            // on the destination's stream: the slot's content has been added
    std::vector<Tensor> slots;  // bytes; the last is in use; a captured graph may still use those it outgrew
  };

  void check_data(const std::vector<Tensor>& data) const;
  const Plan& prepared_plan(int64_t count);
  void enqueue(const Transfer& transfer, const std::vector<std::byte*>& buffers, DType dtype);
  void finish(const Transfer& transfer);

  const Algorithm algorithm_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, Link> links_;  // (source, destination): those that some plan uses
  std::map<int64_t, Plan> plans_;              // by count; checked
  std::mutex mutex_;
};

}  // namespace lockstep::collective
