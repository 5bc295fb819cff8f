// Cooperative groups: a block, tiles of a warp, the lanes that are together right now, a grid of a
// cooperative launch. Names and meanings are CUDA's; a tile has 32 threads at most.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstring>
#include <type_traits>

namespace cooperative_groups {

namespace detail {

using hostcuda::detail::Site;

inline unsigned long long block_size() {
  return 1ull * blockDim.x * blockDim.y * blockDim.z;
}
inline unsigned rank_in_block() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

// A shuffle of any value that can be copied as bytes: eight at a time.
template <typename T>
T shuffle(unsigned mask, const T& value, int lane, const Site& site) {
  static_assert(std::is_trivially_copyable_v<T>, "a shuffled value is copied as bytes");
  constexpr size_t kWord = sizeof(unsigned long long);
  T result;
  for (size_t at = 0; at < sizeof(T); at += kWord) {
    const size_t bytes = sizeof(T) - at < kWord ? sizeof(T) - at : kWord;
    unsigned long long word = 0;
    std::memcpy(&word, reinterpret_cast<const char*>(&value) + at, bytes);
    word = hostcuda::detail::shuffle(mask, word, lane, site);
    std::memcpy(reinterpret_cast<char*>(&result) + at, &word, bytes);
  }
  return result;
}

}  // namespace detail

// Any group: what its threads have in common is how they wait for each other.
class thread_group {
 public:
  void sync(const detail::Site& site = detail::Site::current()) const {
    switch (kind_) {
      case Kind::block:
        __syncthreads(site);
        break;
      case Kind::lanes:
        __syncwarp(mask_, site);
        break;
      case Kind::grid:
        hostcuda::detail::grid_barrier(site);
        break;
    }
  }
  unsigned long long size() const { return size_; }
  unsigned long long num_threads() const { return size_; }
  unsigned long long thread_rank() const { return rank_; }
  bool is_valid() const { return true; }

 protected:
  enum class Kind { block, lanes, grid };
  thread_group(Kind kind, unsigned mask, unsigned long long size, unsigned long long rank)
      : kind_(kind), mask_(mask), size_(size), rank_(rank) {}

  Kind kind_;
  unsigned mask_;  // the lanes of the warp, of a group inside one
  unsigned long long size_, rank_;

  friend thread_group tiled_partition(const thread_group& parent, unsigned size);
};

class thread_block : public thread_group {
 public:
  thread_block() : thread_group(Kind::block, 0, detail::block_size(), detail::rank_in_block()) {}
  unsigned size() const { return static_cast<unsigned>(size_); }
  unsigned num_threads() const { return static_cast<unsigned>(size_); }
  unsigned thread_rank() const { return static_cast<unsigned>(rank_); }
  static dim3 group_index() { return dim3(blockIdx); }
  static dim3 thread_index() { return dim3(threadIdx); }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};

inline thread_block this_thread_block() {
  return {};
}

class grid_group : public thread_group {
 public:
  grid_group()
      : thread_group(Kind::grid, 0, detail::block_size() * gridDim.x * gridDim.y * gridDim.z,
                     block_rank() * detail::block_size() + detail::rank_in_block()) {}
  bool is_valid() const { return hostcuda::detail::grid_is_cooperative(); }
  static unsigned long long block_rank() {
    return (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 group_dim() { return gridDim; }
  static dim3 block_index() { return dim3(blockIdx); }
};

inline grid_group this_grid() {
  return {};
}

// The lanes `mask` of one warp, in their order: what tiles and coalesced groups are.
class lane_group : public thread_group {
 public:
  unsigned size() const { return static_cast<unsigned>(size_); }
  unsigned num_threads() const { return static_cast<unsigned>(size_); }
  unsigned thread_rank() const { return static_cast<unsigned>(rank_); }
  unsigned meta_group_size() const { return groups_; }
  unsigned meta_group_rank() const { return group_; }

  template <typename T>
  T shfl(T value, unsigned rank, const detail::Site& site = detail::Site::current()) const {
    return detail::shuffle(mask_, value, lane_of(rank % size()), site);
  }
  template <typename T>
  T shfl_down(T value, unsigned delta, const detail::Site& site = detail::Site::current()) const {
    const unsigned rank = thread_rank() + delta;
    return detail::shuffle(mask_, value, lane_of(rank < size() ? rank : thread_rank()), site);
  }
  template <typename T>
  T shfl_up(T value, unsigned delta, const detail::Site& site = detail::Site::current()) const {
    return detail::shuffle(mask_, value,
                           lane_of(delta <= thread_rank() ? thread_rank() - delta : thread_rank()), site);
  }
  template <typename T>
  T shfl_xor(T value, unsigned lane_mask, const detail::Site& site = detail::Site::current()) const {
    const unsigned rank = thread_rank() ^ lane_mask;
    return detail::shuffle(mask_, value, lane_of(rank < size() ? rank : thread_rank()), site);
  }

  // Bit r: the thread of rank r.
  unsigned ballot(int predicate, const detail::Site& site = detail::Site::current()) const {
    return packed(__ballot_sync(mask_, predicate, site));
  }
  int any(int predicate, const detail::Site& site = detail::Site::current()) const {
    return __any_sync(mask_, predicate, site);
  }
  int all(int predicate, const detail::Site& site = detail::Site::current()) const {
    return __all_sync(mask_, predicate, site);
  }
  template <typename T>
  unsigned match_any(T value, const detail::Site& site = detail::Site::current()) const {
    return packed(__match_any_sync(mask_, value, site));
  }
  template <typename T>
  unsigned match_all(T value, int& predicate, const detail::Site& site = detail::Site::current()) const {
    return packed(__match_all_sync(mask_, value, &predicate, site));
  }

  unsigned lanes() const { return mask_; }

 protected:
  explicit lane_group(unsigned mask, unsigned groups = 1, unsigned group = 0)
      : thread_group(Kind::lanes, mask, static_cast<unsigned>(std::popcount(mask)),
                     static_cast<unsigned>(std::popcount(mask & ((1u << hostcuda::detail::lane()) - 1)))),
        groups_(groups),
        group_(group) {}

 private:
  int lane_of(unsigned rank) const {
    unsigned rest = mask_;
    for (; rank > 0; --rank) rest &= rest - 1;
    return std::countr_zero(rest);
  }
  unsigned packed(unsigned lanes) const {
    unsigned result = 0;
    for (unsigned rank = 0, rest = mask_; rest != 0; rest &= rest - 1, ++rank)
      if ((lanes & rest & -rest) != 0) result |= 1u << rank;
    return result;
  }

  unsigned groups_, group_;
};

class coalesced_group : public lane_group {
 public:
  explicit coalesced_group(unsigned mask, unsigned groups = 1, unsigned group = 0)
      : lane_group(mask, groups, group) {}
};

// The lanes of the warp that are at this call together.
inline coalesced_group coalesced_threads(const detail::Site& site = detail::Site::current()) {
  return coalesced_group(__activemask(site));
}

namespace detail {

// The lanes of the tile of `size` threads that the caller is in, in a block that is cut into tiles.
inline unsigned tile_lanes(unsigned size) {
  const unsigned first = static_cast<unsigned>(hostcuda::detail::lane()) / size * size;
  const unsigned long long rest = block_size() - rank_in_block() / size * size;  // the last tile may be short
  const unsigned present = rest < size ? static_cast<unsigned>(rest) : size;
  return (present == 32 ? ~0u : (1u << present) - 1) << first;
}

}  // namespace detail

template <unsigned kSize, typename Parent = void>
class thread_block_tile;

template <unsigned kSize>
class thread_block_tile<kSize, void> : public lane_group {
  static_assert(kSize > 0 && kSize <= 32 && (kSize & (kSize - 1)) == 0,
                "hostcuda: a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  static constexpr unsigned size() { return kSize; }
  static constexpr unsigned num_threads() { return kSize; }

 protected:
  thread_block_tile(unsigned mask, unsigned groups, unsigned group) : lane_group(mask, groups, group) {}
};

template <unsigned kSize, typename Parent>
class thread_block_tile : public thread_block_tile<kSize, void> {
 public:
  explicit thread_block_tile(const Parent& parent)
      : thread_block_tile<kSize, void>(detail::tile_lanes(kSize),
                                       static_cast<unsigned>((parent.size() + kSize - 1) / kSize),
                                       static_cast<unsigned>(parent.thread_rank() / kSize)) {}
};

template <unsigned kSize, typename Parent>
thread_block_tile<kSize, Parent> tiled_partition(const Parent& parent) {
  return thread_block_tile<kSize, Parent>(parent);
}

// Tiles of a size that is known as the program runs; of a coalesced group, so many of its lanes in their
// order.
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
  unsigned mask = detail::tile_lanes(size);
  if (parent.kind_ == thread_group::Kind::lanes) {
    mask = 0;
    const unsigned tile = static_cast<unsigned>(parent.rank_) / size;
    for (unsigned rank = 0, rest = parent.mask_; rest != 0; rest &= rest - 1, ++rank)
      if (rank / size == tile) mask |= rest & -rest;
  }
  return coalesced_group(mask);
}

inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned size) {
  unsigned mask = 0;
  for (unsigned rank = 0, rest = parent.lanes(); rest != 0; rest &= rest - 1, ++rank)
    if (rank / size == parent.thread_rank() / size) mask |= rest & -rest;
  return coalesced_group(mask, (parent.size() + size - 1) / size, parent.thread_rank() / size);
}

// The threads for which `predicate` is what it is for the caller.
inline coalesced_group binary_partition(const lane_group& parent, bool predicate,
                                        const detail::Site& site = detail::Site::current()) {
  const unsigned yes = __ballot_sync(parent.lanes(), predicate, site);
  return coalesced_group(predicate ? yes : parent.lanes() & ~yes, 2, predicate ? 0 : 1);
}

template <typename Label>
coalesced_group labeled_partition(const lane_group& parent, Label label,
                                  const detail::Site& site = detail::Site::current()) {
  return coalesced_group(__match_any_sync(parent.lanes(), label, site));
}

template <typename Group>
void sync(const Group& group, const detail::Site& site = detail::Site::current()) {
  group.sync(site);
}

}  // namespace cooperative_groups
