#include "parallel/collective/allreduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "core/peer.h"
#include "kernels/check.h"
#include "kernels/combine.h"
#include "parallel/collective/checker.h"

namespace lockstep::collective {
namespace {

void check_devices(const std::vector<Device>& devices) {
  for (size_t i = 0; i < devices.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (devices[i] == devices[j])
        throw Error(fmt::format("allreduce: ranks {} and {} are both on device {}: each needs one of its own",
                                j, i, devices[i].index()));
}

bool is_summed(DType dtype) {
  return dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float16 ||
         dtype == DType::int32;
}

kernels::Combine combine_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::max:
      return kernels::Combine::max;
    case Reduction::min:
      return kernels::Combine::min;
    default:
      return kernels::Combine::sum;
  }
}

// Memory to receive a slice of the largest type; parts that follow each other stay aligned.
size_t received_bytes(Slice slice) {
  return (slice.size() * sizeof(float) + 255) / 256 * 256;
}

}  // namespace

Allreduce::Allreduce(const std::vector<Device>& devices, Algorithm algorithm)
    : algorithm_(algorithm), devices_(devices), lanes_(devices.size()) {
  check_devices(devices);
  for (size_t r = 0; r < devices.size(); ++r) lanes_[r].push_back({devices[r].stream()});
}

void Allreduce::operator()(const std::vector<Tensor>& data, Reduction reduction) {
  check_data(data, reduction);
  const std::lock_guard lock(mutex_);
  const auto& [schedule, lanes, events, fused] = prepared(data.front().size());
  if (schedule.tasks.empty()) return;
  Call call{{}, data.front().dtype(), reduction};
  for (const Tensor& tensor : data) {
    call.buffers.push_back(for_summed_type(
        tensor.dtype(), [&tensor]<typename T>(T) { return reinterpret_cast<std::byte*>(tensor.data<T>()); }));
    tensor.mark_overwritten();
  }
  // The host only enqueues. What one stream needs of another, it waits for by an event.
  for (size_t t = 0; t < schedule.tasks.size(); ++t) {
    const Task& task = schedule.tasks[t];
    const Lane& lane = *lanes[task.stream];
    for (const int other : task.after) stream_wait(lane.stream, events.at(other));
    run(task, lane, call);
    if (task.awaited) events.at(static_cast<int>(t)).record(lane.stream);
  }
  if (reduction == Reduction::mean && !fused) divide(call, data.front().size());
}

void Allreduce::run(const Task& task, const Lane& lane, const Call& call) const {
  const DeviceGuard guard(devices_[task.rank]);
  switch (task.kind) {
    case Task::Kind::begin:
    case Task::Kind::end:
      return;  // the caller's work
    case Task::Kind::transfer:
      return transfer(task.transfer, lane, call);
    case Task::Kind::combine:
      return combine(task.rank, task.transfer.slice, lane, call);
  }
}

// The mean out of the sum, which is the same in all ranks.
void Allreduce::divide(const Call& call, int64_t count) const {
  for (size_t r = 0; r < devices_.size(); ++r) {
    const DeviceGuard guard(devices_[r]);
    for_summed_type(call.dtype, [&]<typename T>(T) {
      if constexpr (!std::is_same_v<T, int32_t>)
        kernels::scale(reinterpret_cast<T*>(call.buffers[r]), 1.0f / static_cast<float>(devices_.size()),
                       count, devices_[r].stream());
    });
  }
}

// One hop, on a stream of the destination. It adds what it reads in the source's memory; where it cannot read
// there, a copy lands in the lane's memory first. Both are on one stream, so the next copy overwrites nothing
// that is still being added.
void Allreduce::transfer(const Transfer& t, const Lane& lane, const Call& call) const {
  const Device &source = devices_[t.source], &destination = devices_[t.destination];
  const size_t begin = t.slice.begin * size_of(call.dtype), bytes = t.slice.size() * size_of(call.dtype);
  const std::byte* from = call.buffers[t.source] + begin;
  std::byte* to = call.buffers[t.destination] + begin;
  if (t.action == Action::copy) return peer_copy(to, destination, from, source, bytes, lane.stream);
  if (!reads_in_place(t.destination, t.source)) {
    auto* received = reinterpret_cast<std::byte*>(lane.received.back().data<uint8_t>());
    peer_copy(received, destination, from, source, bytes, lane.stream);
    from = received;
  }
  for_summed_type(call.dtype, [&]<typename T>(T) {
    kernels::combine_into(combine_of(call.reduction), reinterpret_cast<T*>(to),
                          reinterpret_cast<const T*>(from), t.slice.size(), lane.stream);
  });
}

// All ranks' parts of a slice become one, by a kernel of one rank, which works on copies of those that it
// cannot reach.
void Allreduce::combine(int rank, Slice slice, const Lane& lane, const Call& call) const {
  const size_t begin = slice.begin * size_of(call.dtype), bytes = slice.size() * size_of(call.dtype);
  std::vector<std::byte*> parts;
  for (const std::byte* buffer : call.buffers) parts.push_back(const_cast<std::byte*>(buffer) + begin);
  std::vector<std::byte*> reachable = parts;
  for (size_t r = 0; r < parts.size(); ++r) {
    if (reads_in_place(rank, static_cast<int>(r))) continue;
    reachable[r] =
        reinterpret_cast<std::byte*>(lane.received.back().data<uint8_t>()) + r * received_bytes(slice);
    peer_copy(reachable[r], devices_[rank], parts[r], devices_[r], bytes, lane.stream);
  }
  const float factor = call.reduction == Reduction::mean ? 1.0f / static_cast<float>(parts.size()) : 1.0f;
  for_summed_type(call.dtype, [&]<typename T>(T) {
    std::vector<T*> buffers;
    for (std::byte* part : reachable) buffers.push_back(reinterpret_cast<T*>(part));
    kernels::combine_all(combine_of(call.reduction), buffers, factor, slice.size(), lane.stream);
  });
  for (size_t r = 0; r < parts.size(); ++r)
    if (reachable[r] != parts[r])
      peer_copy(parts[r], devices_[r], reachable[r], devices_[rank], bytes, lane.stream);
}

bool Allreduce::reads_in_place(int reader, int owner) const {
  return peer_route(devices_[owner], devices_[reader]) != PeerRoute::host;
}

// The schedule for `count` elements, with all streams, events and memory that it needs.
const Allreduce::Prepared& Allreduce::prepared(int64_t count) {
  if (const auto known = prepared_.find(count); known != prepared_.end()) return known->second;
  const int ranks = static_cast<int>(devices_.size());
  const Plan plan = algorithm_(ranks, count);
  check(plan);
  if (plan.ranks != ranks || plan.count != count)
    throw Error(fmt::format("allreduce: asked for a plan of {} ranks and {} elements, got one of {} and {}",
                            ranks, count, plan.ranks, plan.count));
  if (plan.goal != Goal::allreduce)
    throw Error(fmt::format("allreduce: the plan is one for {}", name_of(plan.goal)));
  Prepared made;
  made.schedule = schedule(plan);
  made.fused = plan.fused;
  if (plan.transfers.empty()) made.schedule.tasks.clear();  // one rank, or no elements
  std::vector<size_t> used(devices_.size(), 0);
  for (const int rank : made.schedule.streams) {
    const DeviceGuard guard(devices_[rank]);
    if (used[rank] == lanes_[rank].size()) {
      Stream stream;
      const cudaStream_t handle = stream.get();
      lanes_[rank].push_back({handle, std::move(stream)});
    }
    made.lanes.push_back(&lanes_[rank][used[rank]++]);
  }
  for (size_t t = 0; t < made.schedule.tasks.size(); ++t) {
    const Task& task = made.schedule.tasks[t];
    const DeviceGuard guard(devices_[task.rank]);
    if (task.awaited) made.events.emplace(static_cast<int>(t), Event());
    prepare_to_receive(task, *made.lanes[task.stream]);
  }
  return prepared_.emplace(count, std::move(made)).first->second;
}

// Makes memory for what the task's rank cannot read where it lies. Probes the routes now, not in the middle
// of a step.
void Allreduce::prepare_to_receive(const Task& task, Lane& lane) const {
  size_t needed = 0;
  if (task.kind == Task::Kind::transfer) {
    const Transfer& t = task.transfer;
    if (!reads_in_place(t.destination, t.source) && t.action == Action::add) needed = received_bytes(t.slice);
  } else if (task.kind == Task::Kind::combine) {
    for (size_t r = 0; r < devices_.size(); ++r)
      if (!reads_in_place(task.rank, static_cast<int>(r)))
        needed = devices_.size() * received_bytes(task.transfer.slice);
  }
  const size_t size = lane.received.empty() ? 0 : lane.received.back().size();
  if (needed > size)
    lane.received.push_back(
        Tensor::empty({static_cast<int64_t>(std::max(needed, 2 * size))}, devices_[task.rank], DType::uint8));
}

void Allreduce::check_data(const std::vector<Tensor>& data, Reduction reduction) const {
  if (data.size() != devices_.size())
    throw Error(fmt::format("allreduce: {} buffers for {} devices", data.size(), devices_.size()));
  for (size_t i = 0; i < data.size(); ++i) {
    if (!data[i].defined()) throw Error(fmt::format("allreduce: data[{}] is undefined", i));
    if (data[i].dtype() != data[0].dtype())
      throw Error(fmt::format("allreduce: data[{}] is {} but data[0] is {}", i, name_of(data[i].dtype()),
                              name_of(data[0].dtype())));
    if (!is_summed(data[i].dtype()))
      throw Error(
          fmt::format("allreduce: data[{}] is {}: only float32, bfloat16, float16 and int32 are summed", i,
                      name_of(data[i].dtype())));
    if (reduction == Reduction::mean && data[i].dtype() == DType::int32)
      throw Error(fmt::format("allreduce: data[{}] is int32, whose mean is no integer: ask for the sum", i));
    if (data[i].shape() != data[0].shape())
      throw Error(fmt::format("allreduce: data[{}] has shape {} but data[0] has {}", i,
                              lockstep::to_string(data[i].shape()), lockstep::to_string(data[0].shape())));
    if (data[i].device() != devices_[i])
      throw Error(fmt::format("allreduce: data[{}] is on device {}, rank {} on device {}", i,
                              data[i].device().index(), i, devices_[i].index()));
  }
}

void allreduce(const std::vector<Tensor>& data, Algorithm algorithm, Reduction reduction) {
  std::vector<Device> devices;
  std::vector<int> indices;
  for (size_t i = 0; i < data.size(); ++i) {
    if (!data[i].defined()) throw Error(fmt::format("allreduce: data[{}] is undefined", i));
    devices.push_back(data[i].device());
    indices.push_back(data[i].device().index());
  }
  if (devices.empty()) throw Error("allreduce: there is no buffer");
  // Never destroyed, like the devices themselves.
  using Key = std::tuple<std::vector<int>, Algorithm>;
  static auto& known = *new std::map<Key, Allreduce>;
  static std::mutex mutex;
  Allreduce* found = nullptr;
  {
    const std::lock_guard lock(mutex);
    check_devices(devices);
    found = &known.try_emplace({indices, algorithm}, devices, algorithm).first->second;
  }
  (*found)(data, reduction);
}

}  // namespace lockstep::collective
