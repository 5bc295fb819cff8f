// Records what the threads of a worker's blocks read and write. Threads run one after the other up to where
// they wait, so the accesses of each are kept by instruction until all threads of its warp have come there;
// then the n-th access of every lane at an instruction is one request, and only sums are kept.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "hostcuda/src/kernels/block.h"
#include "hostcuda/src/kernels/observer.h"
#include "hostcuda/src/profile/results.h"
#include "hostcuda/src/profile/shadow.h"
#include "hostcuda/src/profile/traffic.h"
#include "hostcuda/src/runtime/symbols.h"

namespace hostcuda::profile {

struct Access {
  const void* pc;  // the address after the instruction
  const void* address;
  unsigned bytes;
  Kind kind;
  bool writes;
  bool counts = true;  // false: matters for races alone
};

class Recorder : public KernelObserver {
 public:
  Recorder();

  void begin_launch(const KernelLaunch& launch, uint64_t first_block, const SharedBounds& shared) override;
  void end_launch() override;
  bool begin_block(Block& block, uint64_t index) override;
  void end_block() override;
  void barrier() override;
  void warp_met(int warp, unsigned lanes, unsigned ended) override;
  void fence() override;

  // The running thread is about to do it.
  void access(const Access& access);

 private:
  static constexpr int kWarps = Block::kMaxThreads / Block::kWarpLanes;
  static constexpr unsigned kNeverSeen = std::numeric_limits<unsigned>::max();

  struct Instruction {
    InstructionCounts counts;
    unsigned first_place = kNeverSeen;  // the earliest among a thread's accesses since the last barrier
    std::array<uint64_t, kWarps> in_block = {};  // requests of each warp of the block
  };
  struct Log {
    std::array<std::vector<uint64_t>, Block::kWarpLanes> addresses;
    unsigned lanes = 0;  // those that have any
  };
  struct Bounds {
    uint64_t first = 0, bytes = 0;
  };
  // A store to what another thread has stored to: no race if it stores what is there already.
  struct PendingStore {
    Race race;
    const void* address;
    size_t bytes;
    std::array<std::byte, 16> before;
  };

  std::optional<Space> space_of(const Access& access);
  std::optional<Space> space_of_far_memory(const Access& access);
  unsigned instruction_of(const Access& access, Space space);
  void log(unsigned instruction, uint64_t address);
  void flush_warp(int warp);
  void flush_all();
  void add_requests(unsigned number, Log& log, int warp);
  void look_for_races(const Access& access, Space space, unsigned instruction);
  void settle_pending_store();
  std::string place_of(const void* address, Space space) const;
  [[noreturn]] void give_up(const Access& access, const std::string& fault, const std::string& where);

  const KernelLaunch* launch_ = nullptr;
  bool recording_ = false;
  std::vector<uint64_t> watched_;  // the blocks that are
  Block* block_ = nullptr;
  std::vector<uint3> block_index_;  // of the watched blocks so far
  ShapeProfile recorded_;

  std::vector<Range> static_shared_;
  std::vector<bool> static_touched_;  // in this launch
  Range thread_storage_, variables_, dynamic_shared_, shared_mapping_;
  std::array<Bounds, 8> allocations_{};  // those that were touched last
  unsigned next_allocation_ = 0;
  uint64_t parameters_ = 0;  // where the launch keeps the kernel's

  std::vector<Instruction> instructions_;  // of this launch
  struct Remembered {
    const void* pc = nullptr;
    unsigned bytes = 0;
    Space space = Space::global;
    Kind kind = Kind::load;
    unsigned instruction = 0;
  };
  std::array<Remembered, 1024> remembered_{};
  std::array<std::vector<Log>, kWarps> logs_;  // [warp][instruction]
  std::vector<unsigned> logged_;               // [thread]: accesses since the last flush
  std::vector<unsigned> since_barrier_;        // [thread]
  std::array<uint64_t, kWarps> chain_global_{}, chain_shared_{};

  Traffic traffic_;
  uint64_t barriers_ = 0;  // of the block

  Shadow shadow_;
  std::optional<PendingStore> pending_;
};

// The recorder of the calling thread while it runs threads of a watched block, else null.
extern constinit thread_local Recorder* active_recorder __attribute__((tls_model("initial-exec")));

// The observer of the calling thread; null where the environment asks for no profile.
KernelObserver* recorder_of_this_thread();

}  // namespace hostcuda::profile
