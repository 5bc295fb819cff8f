// Races: for each word of memory that a watched block touches, who wrote it last and who has read it since. A
// thread may touch a word after another one only if something orders the two: a barrier of their block, a
// warp operation with both in its mask, or, from block to block, __threadfence and an atomic operation on one
// side and an atomic operation on the same address on the other.
//
// Time is the number of accesses so far. Everything that orders is kept as "thread t has seen all that thread
// u did before time s": for a barrier one s for the block, for a warp 32 a lane, for blocks one a block.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "hostcuda/src/profile/requests.h"

namespace hostcuda::profile {

// One access, in 16 bytes.
struct Touch {
  uint64_t instruction : 24;
  uint64_t thread : 10;
  uint64_t bytes : 4;  // of the word, a bit each; 0: no touch
  uint64_t atomic : 1;
  uint64_t unused : 25;
  uint64_t time : 40;
  uint64_t block : 24;  // its number among the watched ones
};

enum class Order { none, same_warp, same_block, other_block };  // how far apart two racing threads are

class Shadow {
 public:
  Shadow();

  void begin_launch();
  void begin_block();  // the next of the watched ones
  unsigned block() const { return block_; }

  // The threads' order.
  void barrier() { barrier_time_ = time_; }
  void warp_met(int warp, unsigned lanes, unsigned ended);
  void fence(int thread) { fenced_[thread] = time_ + 1; }
  void atomic(int thread, uint64_t address);

  // A thread touches `bytes` bytes from `address`. Calls race(previous, order) for the first race that there
  // is.
  template <typename Race>
  void touch(uint64_t address, unsigned bytes, Space space, Kind kind, bool writes, unsigned instruction,
             int thread, Race race);

  uint64_t time() const { return time_; }
  bool complete() const { return complete_; }  // false: there was more memory than can be looked after

 private:
  static constexpr uint64_t kWordBytes = 4;
  static constexpr uint64_t kPageWords = 64;
  static constexpr size_t kMostPages = size_t{1} << 17;  // 512 MB

  struct Word {
    Touch write;
    // The last read, the last by another thread of its warp, and the last by another warp.
    std::array<Touch, 3> reads;
  };
  struct Page {
    std::array<Word, kPageWords> words;
  };

  Word* word(uint64_t address);
  Order unordered(const Touch& before, Space space, int thread) const;
  static void note_read(Word& word, const Touch& touch);

  std::unordered_map<uint64_t, Page*> pages_;
  std::vector<std::unique_ptr<Page>> all_pages_;
  size_t used_pages_ = 0;
  std::array<std::pair<uint64_t, Page*>, 64> recent_{};  // of pages_
  bool complete_ = true;

  uint64_t time_ = 1;
  unsigned block_ = 0;
  uint64_t block_time_ = 0;                     // when it started
  uint64_t barrier_time_ = 0;                   // of its last barrier
  std::vector<std::array<uint64_t, 32>> seen_;  // [thread][lane of its warp]
  std::vector<uint64_t> fenced_;                // [thread]
  // What an atomic operation on an address, and the running block, have seen of each block.
  std::unordered_map<uint64_t, std::unordered_map<unsigned, uint64_t>> published_;
  std::unordered_map<unsigned, uint64_t> known_;
};

template <typename Race>
void Shadow::touch(uint64_t address, unsigned bytes, Space space, Kind kind, bool writes,
                   unsigned instruction, int thread, Race race) {
  ++time_;
  bool raced = false;
  for (const uint64_t end = address + bytes; address < end;) {
    const uint64_t first = address % kWordBytes, last = std::min(kWordBytes, first + (end - address));
    Touch touch{};
    touch.instruction = instruction;
    touch.thread = static_cast<uint64_t>(thread);
    touch.bytes = ((1u << last) - 1) & ~((1u << first) - 1);
    touch.atomic = kind == Kind::atomic;
    touch.time = time_;
    touch.block = block_;
    Word* const at = word(address);
    address += last - first;
    if (at == nullptr) continue;
    const auto look = [&](const Touch& before) {
      if (raced || (before.bytes & touch.bytes) == 0 || (before.atomic && touch.atomic)) return;
      const Order order = unordered(before, space, thread);
      if (order == Order::none) return;
      raced = true;
      race(before, order);
    };
    look(at->write);
    if (!writes) {
      note_read(*at, touch);
      continue;
    }
    for (const Touch& read : at->reads) look(read);
    at->write = touch;
    at->reads = {};
  }
}

}  // namespace hostcuda::profile
