#include "parallel/collective/allreduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/peer.h"
#include "kernels/check.h"
#include "kernels/elementwise.h"
#include "parallel/collective/checker.h"

namespace lockstep::collective {
namespace {

// A stream or an event on a device.
template <typename T>
T on(const Device& device) {
  const DeviceGuard guard(device);
  return T();
}

void check_devices(const std::vector<Device>& devices) {
  for (size_t i = 0; i < devices.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (devices[i] == devices[j])
        throw Error(fmt::format("allreduce: ranks {} and {} are both on device {}: each needs one of its own",
                                j, i, devices[i].index()));
}

}  // namespace

Allreduce::Rank::Rank(const Device& where)
    : device(where), stream(on<Stream>(where)), given(on<Event>(where)), finished(on<Event>(where)) {}

Allreduce::Link::Link(const Device& source, const Device& destination)
    : stream(on<Stream>(source)), data_ready(on<Event>(source)), slot_free(on<Event>(destination)) {
  peer_route(source, destination);  // probes now, not in the middle of a step
}

Allreduce::Allreduce(const std::vector<Device>& devices, Algorithm algorithm) : algorithm_(algorithm) {
  check_devices(devices);
  for (const Device& device : devices) ranks_.emplace_back(device);
}

void Allreduce::operator()(const std::vector<Tensor>& data) {
  check_data(data);
  const std::lock_guard lock(mutex_);
  const Plan& plan = prepared_plan(data.front().size());
  if (plan.transfers.empty()) return;  // one rank, or no elements
  const DType dtype = data.front().dtype();
  std::vector<std::byte*> buffers;
  for (const Tensor& tensor : data) {
    buffers.push_back(for_float_type("allreduce", dtype, [&tensor](auto element) {
      return reinterpret_cast<std::byte*>(tensor.data<decltype(element)>());
    }));
    tensor.mark_overwritten();
  }

  // Begin where the caller's work ends, with all slots free.
  for (Rank& rank : ranks_) {
    rank.given.record(rank.device.stream());
    rank.stream.wait(rank.given);
    rank.finished.record(rank.stream.get());
  }
  for (auto& [ends, link] : links_) link.slot_free.record(ranks_[ends.second].stream.get());

  // Round by round; the host only enqueues.
  for (auto first = plan.transfers.begin(); first != plan.transfers.end();) {
    auto t = first;
    for (; t != plan.transfers.end() && t->round == first->round; ++t) enqueue(*t, buffers, dtype);
    for (; first != t; ++first) finish(*first);
  }

  // The caller's next work comes after all of it.
  for (const Rank& rank : ranks_) rank.device.wait(rank.finished);
}

// One hop. A copy that is to be added lands in the link's slot, and two events guard the slot: the addition
// waits for the data, and the next copy waits until the addition has read them.
//
//   link's stream          ... copy -> [data_ready]          copy -> ...
//                                           |                 ^
//   destination's stream                    +-> add -> [slot_free]
void Allreduce::enqueue(const Transfer& t, const std::vector<std::byte*>& buffers, DType dtype) {
  Link& link = links_.at({t.source, t.destination});
  const Rank& source = ranks_[t.source];
  const Rank& destination = ranks_[t.destination];
  const size_t begin = t.slice.begin * size_of(dtype);
  const std::byte* from = buffers[t.source] + begin;
  std::byte* to = buffers[t.destination] + begin;
  const size_t bytes = t.slice.size() * size_of(dtype);

  link.stream.wait(source.finished);  // what the source received in earlier rounds is in the sum
  if (t.action == Action::add) {
    link.stream.wait(link.slot_free);
    peer_copy(link.slot(), destination.device, from, source.device, bytes, link.stream.get());
    link.data_ready.record(link.stream.get());

    const DeviceGuard guard(destination.device);
    destination.stream.wait(link.data_ready);
    for_float_type("allreduce", dtype, [&](auto element) {
      using T = decltype(element);
      kernels::add_into(reinterpret_cast<T*>(to), static_cast<const T*>(link.slot()), t.slice.size(),
                        destination.stream.get());
    });
    link.slot_free.record(destination.stream.get());
  } else {
    link.stream.wait(destination.finished);  // nobody reads any more what is overwritten here
    peer_copy(to, destination.device, from, source.device, bytes, link.stream.get());
    link.data_ready.record(link.stream.get());
    destination.stream.wait(link.data_ready);
  }
}

// After all transfers of a round are enqueued: both ends' later rounds come behind this one. The source's do,
// too, because it must not overwrite what is still being sent.
void Allreduce::finish(const Transfer& t) {
  ranks_[t.source].stream.wait(links_.at({t.source, t.destination}).data_ready);
  for (const int rank : {t.source, t.destination}) ranks_[rank].finished.record(ranks_[rank].stream.get());
}

// The plan for `count` elements, with all links and slots that it needs.
const Plan& Allreduce::prepared_plan(int64_t count) {
  if (const auto known = plans_.find(count); known != plans_.end()) return known->second;
  Plan plan = algorithm_(static_cast<int>(ranks_.size()), count);
  check(plan);
  if (plan.ranks != static_cast<int>(ranks_.size()) || plan.count != count)
    throw Error(fmt::format("allreduce: asked for a plan of {} ranks and {} elements, got one of {} and {}",
                            ranks_.size(), count, plan.ranks, plan.count));
  if (plan.goal != Goal::allreduce)
    throw Error(fmt::format("allreduce: the plan is one for {}", name_of(plan.goal)));
  for (const Transfer& t : plan.transfers) {
    const Device &source = ranks_[t.source].device, &destination = ranks_[t.destination].device;
    const auto [found, created] = links_.try_emplace({t.source, t.destination}, source, destination);
    auto& slots = found->second.slots;
    const int64_t size = slots.empty() ? 0 : slots.back().size();
    const int64_t needed = t.slice.size() * static_cast<int64_t>(sizeof(float));  // the largest type
    if (t.action == Action::add && needed > size)
      slots.push_back(Tensor::empty({std::max(needed, 2 * size)}, destination, DType::uint8));
  }
  return plans_.emplace(count, std::move(plan)).first->second;
}

void Allreduce::check_data(const std::vector<Tensor>& data) const {
  if (data.size() != ranks_.size())
    throw Error(fmt::format("allreduce: {} buffers for {} devices", data.size(), ranks_.size()));
  for (size_t i = 0; i < data.size(); ++i) {
    if (!data[i].defined()) throw Error(fmt::format("allreduce: data[{}] is undefined", i));
    if (data[i].dtype() != data[0].dtype())
      throw Error(fmt::format("allreduce: data[{}] is {} but data[0] is {}", i, name_of(data[i].dtype()),
                              name_of(data[0].dtype())));
    if (data[i].dtype() != DType::float32 && data[i].dtype() != DType::bfloat16)
      throw Error(fmt::format("allreduce: data[{}] is {}: only float32 and bfloat16 are summed", i,
                              name_of(data[i].dtype())));
    if (data[i].shape() != data[0].shape())
      throw Error(fmt::format("allreduce: data[{}] has shape {} but data[0] has {}", i,
                              lockstep::to_string(data[i].shape()), lockstep::to_string(data[0].shape())));
    if (data[i].device() != ranks_[i].device)
      throw Error(fmt::format("allreduce: data[{}] is on device {}, rank {} on device {}", i,
                              data[i].device().index(), i, ranks_[i].device.index()));
  }
}

void allreduce(const std::vector<Tensor>& data, Algorithm algorithm) {
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
  (*found)(data);
}

}  // namespace lockstep::collective
