#include "hostcuda/src/profile/recorder.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "hostcuda/src/profile/source_lines.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"
#include "hostcuda/src/runtime/report.h"

namespace hostcuda::profile {

constinit thread_local Recorder* active_recorder = nullptr;

namespace {

constexpr unsigned kMostLogged = 8192;  // accesses of a thread that are kept before its warp is counted
constexpr size_t kParameterBytes = 4096 + 64;  // CUDA's limit for a kernel's parameters

uint64_t number(const void* address) {
  return reinterpret_cast<uint64_t>(address);
}

// The blocks of a grid that are watched: the first and the last, and others evenly between. They come in
// pairs of neighbours, between which races are likeliest.
std::vector<uint64_t> choose_blocks(uint64_t blocks, uint64_t most) {
  std::vector<uint64_t> chosen;
  if (most == 0 || blocks <= most) most = blocks;
  if (most == blocks || most < 4) {
    for (uint64_t i = 0; i < most; ++i) chosen.push_back(most == 1 ? 0 : i * (blocks - 1) / (most - 1));
    return chosen;
  }
  const uint64_t pairs = most / 2;
  for (uint64_t pair = 0; pair < pairs; ++pair) {
    const uint64_t first = pair * (blocks - 2) / (pairs - 1);
    chosen.push_back(first);
    chosen.push_back(first + 1);
  }
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

bool is_mapped(const void* address) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(number(address) / page * page), 1, &resident) == 0;
}

const char* verb(const Access& access) {
  return access.kind == Kind::atomic ? "atomic operation" : access.writes ? "write" : "read";
}

// "kernel(float*)::tile" is tile.
std::string variable_name(const std::string& mangled) {
  const std::string name = readable_name(mangled);
  const size_t colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

}  // namespace

Recorder::Recorder()
    : static_shared_(static_shared_variables()),
      thread_storage_(thread_storage()),
      variables_(writable_variables()),
      logged_(Block::kMaxThreads),
      since_barrier_(Block::kMaxThreads) {}

void Recorder::begin_launch(const KernelLaunch& launch, uint64_t first_block, const SharedBounds& shared) {
  launch_ = &launch;
  recording_ = results().count_launch(launch, first_block == 0);
  if (!recording_) return;
  recorded_ = {};
  recorded_.grid = launch.grid;
  instructions_.clear();
  remembered_ = {};
  for (auto& logs : logs_) logs.clear();
  block_index_.assign(1, uint3{});
  static_touched_.assign(static_shared_.size(), false);
  allocations_ = {};
  watched_ = choose_blocks(recorded_.blocks(), config().profile_blocks);
  dynamic_shared_ = {shared.begin, launch.shared_bytes};
  shared_mapping_ = {shared.mapping_begin, static_cast<size_t>(shared.mapping_end - shared.mapping_begin)};
  // A std::function keeps a larger callable on the heap, and the address of that first. It holds a smaller
  // one itself, which may begin with a pointer to device memory.
  std::memcpy(&parameters_, static_cast<const void*>(&launch.thread), sizeof parameters_);
  if (describe_address(reinterpret_cast<const void*>(parameters_)).state != AddressInfo::State::unknown)
    parameters_ = 0;
  traffic_.begin_launch();
  shadow_.begin_launch();
}

void Recorder::end_launch() {
  if (!recording_) return;
  for (Instruction& instruction : instructions_)
    if (instruction.counts.requests > 0) recorded_.instructions.push_back(instruction.counts);
  for (size_t i = 0; i < static_shared_.size(); ++i)
    if (static_touched_[i]) recorded_.static_shared_bytes += static_shared_[i].bytes;
  recorded_.races_complete = shadow_.complete();
  if (recorded_.recorded_blocks > 0) {
    recorded_.traffic = traffic_.estimate(recorded_.blocks());
    recorded_.traffic_launches = 1;
  }
  results().add(*launch_, recorded_);
  recording_ = false;
}

bool Recorder::begin_block(Block& block, uint64_t index) {
  if (!recording_ || !std::binary_search(watched_.begin(), watched_.end(), index)) return false;
  block_ = &block;
  block_index_.push_back(blockIdx);
  ++recorded_.recorded_blocks;
  shadow_.begin_block();
  traffic_.begin_block();
  barriers_ = 0;
  std::fill(since_barrier_.begin(), since_barrier_.end(), 0);
  std::fill(logged_.begin(), logged_.end(), 0);
  chain_global_ = chain_shared_ = {};
  for (Instruction& instruction : instructions_) {
    instruction.first_place = kNeverSeen;
    instruction.in_block = {};
  }
  active_recorder = this;
  return true;
}

void Recorder::end_block() {
  active_recorder = nullptr;
  settle_pending_store();
  flush_all();
  recorded_.barriers = std::max(recorded_.barriers, barriers_);
  for (Instruction& instruction : instructions_)
    instruction.counts.longest =
        std::max(instruction.counts.longest,
                 *std::max_element(instruction.in_block.begin(), instruction.in_block.end()));
  recorded_.longest_global =
      std::max(recorded_.longest_global, *std::max_element(chain_global_.begin(), chain_global_.end()));
  recorded_.longest_shared =
      std::max(recorded_.longest_shared, *std::max_element(chain_shared_.begin(), chain_shared_.end()));
  block_ = nullptr;
}

void Recorder::barrier() {
  settle_pending_store();
  flush_all();
  ++barriers_;
  shadow_.barrier();
  std::fill(since_barrier_.begin(), since_barrier_.end(), 0);
  for (Instruction& instruction : instructions_) instruction.first_place = kNeverSeen;
}

void Recorder::warp_met(int warp, unsigned lanes, unsigned ended) {
  settle_pending_store();
  shadow_.warp_met(warp, lanes, ended);
  const int present = std::min(Block::kWarpLanes, block_->threads() - warp * Block::kWarpLanes);
  const unsigned all = present == Block::kWarpLanes ? ~0u : (1u << present) - 1;
  if (((lanes | ended) & all) == all) flush_warp(warp);
}

void Recorder::fence() {
  settle_pending_store();
  shadow_.fence(block_->thread());
}

void Recorder::access(const Access& access) {
  if (block_->running_fiber().contains(access.address)) return;  // the thread's own variable
  settle_pending_store();
  const std::optional<Space> space = space_of(access);
  if (!space) return;
  const unsigned instruction = instruction_of(access, *space);
  const int thread = block_->thread();
  unsigned& place = instructions_[instruction].first_place;
  place = std::min(place, since_barrier_[thread]++);
  look_for_races(access, *space, instruction);
  if (access.counts) log(instruction, number(access.address));
}

// Nothing for what is no memory of the kernel: its parameters, constants, the variables of hostcuda.
std::optional<Space> Recorder::space_of(const Access& access) {
  const uint64_t address = number(access.address);
  for (const Bounds& allocation : allocations_) {
    const uint64_t offset = address - allocation.first;
    if (offset < allocation.bytes && access.bytes <= allocation.bytes - offset) return Space::global;
  }
  if (thread_storage_.contains(access.address)) {
    for (size_t i = 0; i < static_shared_.size(); ++i) {
      if (!static_shared_[i].contains(access.address)) continue;
      static_touched_[i] = true;
      return Space::shared;
    }
    return {};
  }
  if (shared_mapping_.contains(access.address)) {
    const uint64_t offset = address - number(dynamic_shared_.begin);
    if (offset < dynamic_shared_.bytes && access.bytes <= dynamic_shared_.bytes - offset)
      return Space::shared;
    const auto* const end = dynamic_shared_.begin + dynamic_shared_.bytes;
    const auto* const at = static_cast<const std::byte*>(access.address);
    char where[120];
    if (at < dynamic_shared_.begin)
      std::snprintf(where, sizeof where,
                    "%td bytes before the start of the %zu bytes of dynamic shared memory",
                    dynamic_shared_.begin - at, dynamic_shared_.bytes);
    else
      std::snprintf(where, sizeof where, "byte %td past the end of the %zu bytes of dynamic shared memory",
                    std::max<ptrdiff_t>(at - end, 0), dynamic_shared_.bytes);
    give_up(access, std::string("out-of-bounds ") + verb(access), where);
  }
  return space_of_far_memory(access);
}

std::optional<Space> Recorder::space_of_far_memory(const Access& access) {
  const uint64_t address = number(access.address);
  AddressInfo info = describe_address(access.address);
  if (info.state == AddressInfo::State::live) {
    const uint64_t base = number(info.base);
    if (access.bytes <= info.size - (address - base)) {
      allocations_[next_allocation_++ % allocations_.size()] = {base, info.size};
      return Space::global;
    }
    info.state = AddressInfo::State::guard;  // it begins inside and ends outside
  }
  if (address - parameters_ < kParameterBytes || address - number(&launch_->thread) < sizeof launch_->thread)
    return {};
  if (variables_.contains(access.address)) return Space::global;
  if (info.state == AddressInfo::State::unknown) info = nearest_allocation(access.address);
  char where[160];
  if (info.state == AddressInfo::State::unknown) {
    if (is_mapped(access.address)) {
      results().add_note(
          {access.pc, name_of(*launch_), "touches memory of the host that is neither pinned nor managed", 1});
      return {};
    }
    std::snprintf(where, sizeof where, "%p, which is no memory of any device", access.address);
    give_up(access, address < 4096 ? "null pointer" : "invalid address", where);
  }
  const uint64_t base = number(info.base), end = base + info.size;
  char owner[32] = "the host";
  if (info.device != kPinned) std::snprintf(owner, sizeof owner, "device %d", info.device);
  if (info.state == AddressInfo::State::freed)
    std::snprintf(where, sizeof where, "byte %zu of the freed allocation of %zu bytes at %p on %s",
                  static_cast<size_t>(address - base), info.size, info.base, owner);
  else if (address < base)
    std::snprintf(where, sizeof where,
                  "%zu bytes before the start of the allocation of %zu bytes at %p on %s",
                  static_cast<size_t>(base - address), info.size, info.base, owner);
  else
    std::snprintf(where, sizeof where, "byte %zu past the end of the allocation of %zu bytes at %p on %s",
                  static_cast<size_t>(std::max(address, end) - end), info.size, info.base, owner);
  const bool freed = info.state == AddressInfo::State::freed;
  give_up(access, freed ? "use after free" : std::string("out-of-bounds ") + verb(access), where);
}

unsigned Recorder::instruction_of(const Access& access, Space space) {
  Remembered& remembered = remembered_[number(access.pc) % 1021];
  if (remembered.pc == access.pc && remembered.bytes == access.bytes && remembered.space == space &&
      remembered.kind == access.kind)
    return remembered.instruction;
  const auto same = [&](const Instruction& known) {
    return known.counts.pc == access.pc && known.counts.bytes == access.bytes &&
           known.counts.space == space && known.counts.kind == access.kind;
  };
  auto found = std::find_if(instructions_.begin(), instructions_.end(), same);
  if (found == instructions_.end()) {
    Instruction& added = instructions_.emplace_back();
    added.counts.pc = access.pc;
    added.counts.space = space;
    added.counts.kind = access.kind;
    added.counts.bytes = access.bytes;
    found = std::prev(instructions_.end());
  }
  remembered = {access.pc, access.bytes, space, access.kind,
                static_cast<unsigned>(found - instructions_.begin())};
  return remembered.instruction;
}

void Recorder::log(unsigned instruction, uint64_t address) {
  const int thread = block_->thread();
  const int warp = thread / Block::kWarpLanes, lane = thread % Block::kWarpLanes;
  // The others of the warp catch up; whoever is first to go on then counts what all of them have done.
  if (logged_[thread] >= kMostLogged) {
    block_->yield();
    if (logged_[thread] >= kMostLogged) flush_warp(warp);
  }
  auto& logs = logs_[warp];
  if (logs.size() <= instruction) logs.resize(instructions_.size());
  Log& at = logs[instruction];
  at.addresses[lane].push_back(address);
  at.lanes |= 1u << lane;
  ++logged_[thread];
}

void Recorder::flush_all() {
  for (int warp = 0; warp * Block::kWarpLanes < block_->threads(); ++warp) flush_warp(warp);
}

void Recorder::flush_warp(int warp) {
  auto& logs = logs_[warp];
  for (size_t i = 0; i < logs.size(); ++i)
    if (logs[i].lanes != 0) add_requests(static_cast<unsigned>(i), logs[i], warp);
  const int first = warp * Block::kWarpLanes;
  std::fill_n(logged_.begin() + first, Block::kWarpLanes, 0);
}

void Recorder::add_requests(unsigned number_of_instruction, Log& log, int warp) {
  Instruction& instruction = instructions_[number_of_instruction];
  InstructionCounts& counts = instruction.counts;
  size_t longest = 0;
  for (const auto& addresses : log.addresses) longest = std::max(longest, addresses.size());
  std::array<uint64_t, Block::kWarpLanes> addresses;
  std::array<uint8_t, Block::kWarpLanes> lanes;
  for (size_t n = 0; n < longest; ++n) {
    size_t count = 0;
    for (uint8_t lane = 0; lane < Block::kWarpLanes; ++lane) {
      if (log.addresses[lane].size() <= n) continue;
      addresses[count] = log.addresses[lane][n];
      lanes[count++] = lane;
    }
    ++counts.requests;
    counts.lanes += count;
    if (count <
        static_cast<size_t>(std::min(Block::kWarpLanes, block_->threads() - warp * Block::kWarpLanes)))
      ++counts.narrow;
    const std::span<const uint64_t> of_lanes(addresses.data(), count);
    if (count > 1)
      counts.vote_stride(static_cast<int64_t>(addresses[1] - addresses[0]) / (lanes[1] - lanes[0]));
    if (counts.space == Space::global) {
      counts.sectors += static_cast<uint64_t>(global_request(of_lanes, counts.bytes).sectors);
      uint64_t previous = 0;
      for (const uint64_t address : of_lanes)
        for (uint64_t sector = address / 32; sector <= (address + counts.bytes - 1) / 32; ++sector) {
          if (sector != previous) traffic_.touch(sector, number_of_instruction, counts.kind != Kind::load);
          previous = sector;
        }
    } else {
      const Request request = shared_request(of_lanes, {lanes.data(), count}, counts.bytes);
      counts.passes += static_cast<uint64_t>(request.passes);
      counts.parts += static_cast<uint64_t>(request.parts);
      counts.most_passes =
          std::max(counts.most_passes, static_cast<uint64_t>(request.passes / std::max(1, request.parts)));
    }
  }
  instruction.in_block[warp] += longest;
  (counts.space == Space::global ? chain_global_ : chain_shared_)[warp] += longest;
  for (auto& of_lane : log.addresses) of_lane.clear();
  log.lanes = 0;
}

void Recorder::look_for_races(const Access& access, Space space, unsigned instruction) {
  const int thread = block_->thread();
  const uint64_t address = number(access.address);
  if (access.kind == Kind::atomic) shadow_.atomic(thread, address);
  shadow_.touch(address, access.bytes, space, access.kind, access.writes, instruction, thread,
                [&](const Touch& before, Order order) {
                  const Instruction& one = instructions_[before.instruction];
                  const Instruction& other = instructions_[instruction];
                  Race race;
                  race.earlier = one.counts.pc;
                  race.later = other.counts.pc;
                  race.earlier_kind = one.counts.kind;
                  race.later_kind = other.counts.kind;
                  race.space = space;
                  race.order = order;
                  race.count = 1;
                  race.earlier_block = block_index_[before.block];
                  race.later_block = block_index_[shadow_.block()];
                  race.earlier_thread = block_->thread_index(static_cast<int>(before.thread));
                  race.later_thread = block_->thread_index(thread);
                  race.place = place_of(access.address, space);
                  // Threads run one after the other, so which came first here says little; what comes first
                  // in each thread does.
                  if (order != Order::other_block && other.first_place < one.first_place) {
                    std::swap(race.earlier, race.later);
                    std::swap(race.earlier_kind, race.later_kind);
                    std::swap(race.earlier_block, race.later_block);
                    std::swap(race.earlier_thread, race.later_thread);
                  }
                  const bool both_store = one.counts.kind == Kind::store && access.kind == Kind::store;
                  if (!both_store || access.bytes > sizeof(PendingStore::before)) {
                    recorded_.add_race(race);
                    return;
                  }
                  pending_ = PendingStore{race, access.address, access.bytes, {}};
                  std::memcpy(pending_->before.data(), access.address, access.bytes);
                });
}

// By the next access of whatever thread, the store has been done.
void Recorder::settle_pending_store() {
  if (!pending_) return;
  if (std::memcmp(pending_->before.data(), pending_->address, pending_->bytes) != 0)
    recorded_.add_race(pending_->race);
  pending_.reset();
}

std::string Recorder::place_of(const void* address, Space space) const {
  char text[120];
  const auto* const at = static_cast<const std::byte*>(address);
  if (space == Space::shared) {
    for (const Range& variable : static_shared_) {
      if (!variable.contains(address)) continue;
      std::snprintf(text, sizeof text, " + %td bytes", at - variable.begin);
      return "shared " + variable_name(variable.name) + text;
    }
    std::snprintf(text, sizeof text, "dynamic shared memory + %td bytes", at - dynamic_shared_.begin);
    return text;
  }
  const AddressInfo info = describe_address(address);
  if (info.state == AddressInfo::State::live) {
    std::snprintf(text, sizeof text, "byte %td of the allocation of %zu bytes at %p",
                  at - static_cast<const std::byte*>(info.base), info.size, info.base);
    return text;
  }
  const std::string variable = variable_around(address);
  return variable.empty() ? "a global variable" : "variable " + variable_name(variable);
}

// The access that a GPU would refuse is not done: the kernel is left as it stands.
void Recorder::give_up(const Access& access, const std::string& fault, const std::string& where) {
  const SourceLine line = SourceLines({access.pc}).of(access.pc);
  const std::string details = "at " + line.text() + ": " + where;
  report_fault(fault, *launch_, blockIdx, &block_->thread_index(), details);
  results().add_note({access.pc, name_of(*launch_), fault + ": " + where, 1});
  block_->leave(cudaErrorIllegalAddress);
}

KernelObserver* recorder_of_this_thread() {
  if (!config().records()) return nullptr;
  thread_local const std::unique_ptr<Recorder> recorder = std::make_unique<Recorder>();
  return recorder.get();
}

}  // namespace hostcuda::profile
