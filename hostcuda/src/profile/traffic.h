// Which sectors of memory the recorded blocks of a launch touch, each once: what DRAM must move for the whole
// launch, by an estimate from the recorded blocks, and what the caches of the multiprocessors cannot keep
// back.
#pragma once

#include <cstdint>
#include <vector>

namespace hostcuda::profile {

struct TrafficEstimate {
  // Bytes of sectors that the whole launch touches, each counted once.
  double read_once = 0, written_once = 0;
  // The same, where each block counts for itself.
  double read_by_blocks = 0, written_by_blocks = 0;
};

class Traffic {
 public:
  void begin_launch();
  void begin_block() { ++block_; }
  // `instruction` is any number that is the same for what runs through memory together.
  void touch(uint64_t sector, unsigned instruction, bool writes);

  // For a grid of so many blocks.
  TrafficEstimate estimate(uint64_t blocks) const;

 private:
  static constexpr uint64_t kMostSectors = uint64_t{1} << 22;  // 128 MB that are told apart

  // Of a direction and instruction.
  struct Span {
    uint64_t first = ~uint64_t{0}, last = 0;
    uint64_t in_launch = 0;  // sectors seen for the first time
    uint64_t in_blocks = 0;  // the same for each block
  };
  struct Slot {
    uint64_t key = 0;  // the sector and its direction; 0: empty
    uint32_t block = 0;
  };

  Slot& find(uint64_t key);
  void grow();

  std::vector<Slot> slots_;
  uint64_t used_ = 0;
  uint32_t block_ = 0;
  std::vector<Span> spans_[2];  // [writes][instruction]
};

}  // namespace hostcuda::profile
