// What device code sees of CUDA: the qualifiers, the built-in variables, barriers and warp collectives.
// A block runs on one OS thread from start to end, so `__shared__` is a thread_local variable and a built-in
// variable costs one load. Blocks of one thread run as a plain loop; the threads of larger ones are fibers
// that switch only where they have to wait for each other (src/block.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include <vector_functions.h>
#include "hostcuda/device_atomics.h"
#include "hostcuda/device_math.h"
#include "hostcuda/device_rounding.h"

#ifdef HOSTCUDA_TRANSLATE  // an ordinary CUDA program: what is left for hostcuda/translate to rewrite
#define __global__ __hostcuda_global__
#define __shared__ __hostcuda_shared__
#else
#define __global__
#define __shared__ static thread_local
#endif
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

#define HOSTCUDA_TLS constinit thread_local __attribute__((tls_model("initial-exec")))
extern HOSTCUDA_TLS uint3 threadIdx;
extern HOSTCUDA_TLS uint3 blockIdx;
extern HOSTCUDA_TLS dim3 blockDim;
extern HOSTCUDA_TLS dim3 gridDim;
inline constexpr int warpSize = 32;

namespace hostcuda::detail {

using Site = std::source_location;

// Whether this OS thread runs a block whose threads are fibers; without, there is nobody to wait for.
extern HOSTCUDA_TLS bool threads_are_fibers;

enum class BarrierResult { none, count, all, any };
int barrier(BarrierResult result, bool predicate, const Site& site);

enum class WarpOperation : uint8_t { sync, shuffle, vote };

// Waits for all lanes of `mask` that have not exited. Shuffle: returns the value that lane `source` brought.
// Vote: returns the lanes whose value was not 0.
uint64_t warp_rendezvous(WarpOperation operation, unsigned mask, uint64_t value, int source,
                         const Site& site);
int lane();
// The lanes of the warp that are at this call together: waits until none of the others can come here.
unsigned active_mask(const Site& site);
// Waits for all threads of a cooperative launch; ends the kernel in any other.
void grid_barrier(const Site& site);
bool grid_is_cooperative();

template <typename T>
concept Shuffled = std::is_arithmetic_v<T> && sizeof(T) <= 8;

template <Shuffled T>
inline T shuffle(unsigned mask, T value, int source, const Site& site) {
  if (!threads_are_fibers) return value;
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_rendezvous(WarpOperation::shuffle, mask, bits, source, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline unsigned ballot(unsigned mask, bool predicate, const Site& site) {
  if (!threads_are_fibers) return predicate ? 1 : 0;
  return static_cast<unsigned>(warp_rendezvous(WarpOperation::vote, mask, predicate, 0, site));
}

}  // namespace hostcuda::detail

inline void __syncthreads(const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  using namespace hostcuda::detail;
  if (threads_are_fibers) barrier(BarrierResult::none, false, site);
}

inline int __syncthreads_count(int predicate,
                               const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  using namespace hostcuda::detail;
  return threads_are_fibers ? barrier(BarrierResult::count, predicate != 0, site) : predicate != 0;
}

inline int __syncthreads_and(int predicate,
                             const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  using namespace hostcuda::detail;
  return threads_are_fibers ? barrier(BarrierResult::all, predicate != 0, site) : predicate != 0;
}

inline int __syncthreads_or(int predicate,
                            const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  using namespace hostcuda::detail;
  return threads_are_fibers ? barrier(BarrierResult::any, predicate != 0, site) : predicate != 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  using namespace hostcuda::detail;
  if (threads_are_fibers) warp_rendezvous(WarpOperation::sync, mask, 0, 0, site);
}

// The four shuffles split a warp into segments of `width` lanes (a power of two) and never leave the own one:
// a source beyond its end is the caller itself, except in __shfl_sync, where it wraps around.
template <hostcuda::detail::Shuffled T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
                     const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  const int segment = hostcuda::detail::lane() & ~(width - 1);
  return hostcuda::detail::shuffle(mask, value, segment | (source & (width - 1)), site);
}

template <hostcuda::detail::Shuffled T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                        const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  const int own = hostcuda::detail::lane();
  const int source = own - static_cast<int>(delta);
  return hostcuda::detail::shuffle(mask, value, source < (own & ~(width - 1)) ? own : source, site);
}

template <hostcuda::detail::Shuffled T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                          const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  const int own = hostcuda::detail::lane();
  const int source = own + static_cast<int>(delta);
  return hostcuda::detail::shuffle(mask, value, source > (own | (width - 1)) ? own : source, site);
}

template <hostcuda::detail::Shuffled T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                         const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  const int own = hostcuda::detail::lane();
  const int source = own ^ lane_mask;  // an earlier segment may be read, a later one may not
  return hostcuda::detail::shuffle(mask, value, source > (own | (width - 1)) ? own : source, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  return hostcuda::detail::ballot(mask, predicate != 0, site);
}

inline int __any_sync(unsigned mask, int predicate,
                      const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  return hostcuda::detail::ballot(mask, predicate != 0, site) != 0;
}

inline int __all_sync(unsigned mask, int predicate,
                      const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  return hostcuda::detail::ballot(mask, predicate == 0, site) == 0;
}

inline unsigned __activemask(const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  return hostcuda::detail::threads_are_fibers ? hostcuda::detail::active_mask(site) : 1;
}

// The lanes of `mask` whose value has the same bits as the caller's.
template <hostcuda::detail::Shuffled T>
inline unsigned __match_any_sync(unsigned mask, T value,
                                 const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  unsigned same = 0;
  for (int other = 0; other < warpSize; ++other) {
    if ((mask >> other & 1) == 0) continue;
    const T theirs = hostcuda::detail::shuffle(mask, value, other, site);
    if (std::memcmp(&theirs, &value, sizeof value) == 0) same |= 1u << other;
  }
  return same;
}

// `mask` where all its lanes bring the same bits, else 0.
template <hostcuda::detail::Shuffled T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate,
                                 const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {
  const bool all = __all_sync(mask, __match_any_sync(mask, value, site) == mask, site) != 0;
  *predicate = all;
  return all ? mask : 0;
}

namespace hostcuda::detail {

// Combines what the lanes of `mask` bring, in their order.
template <typename T, typename Combine>
inline T reduce_lanes(unsigned mask, T value, Combine combine, const Site& site) {
  T result{};
  bool first = true;
  for (int other = 0; other < warpSize; ++other) {
    if ((mask >> other & 1) == 0) continue;
    const T theirs = shuffle(mask, value, other, site);
    result = first ? theirs : combine(result, theirs);
    first = false;
  }
  return result;
}

}  // namespace hostcuda::detail

#define HOSTCUDA_REDUCE(name, expression)                                                          \
  template <typename T>                                                                            \
    requires(std::is_same_v<T, int> || std::is_same_v<T, unsigned>)                                \
  inline T name(unsigned mask, T value,                                                            \
                const hostcuda::detail::Site& site = hostcuda::detail::Site::current()) {          \
    return hostcuda::detail::reduce_lanes(mask, value, [](T a, T b) { return expression; }, site); \
  }

HOSTCUDA_REDUCE(__reduce_add_sync, a + b)
HOSTCUDA_REDUCE(__reduce_min_sync, b < a ? b : a)
HOSTCUDA_REDUCE(__reduce_max_sync, a < b ? b : a)
HOSTCUDA_REDUCE(__reduce_and_sync, a& b)
HOSTCUDA_REDUCE(__reduce_or_sync, a | b)
HOSTCUDA_REDUCE(__reduce_xor_sync, a ^ b)

#undef HOSTCUDA_REDUCE

// Fences between the caller and the device, the block, or everything. Out of line: the thread sanitizer's
// compilers refuse a fence in instrumented code.
void __threadfence();
inline void __threadfence_block() {
  __threadfence();
}
inline void __threadfence_system() {
  __threadfence();
}

// Loads and stores with a hint for the caches.
#define HOSTCUDA_LOAD(name)         \
  template <typename T>             \
  inline T name(const T* address) { \
    return *address;                \
  }
#define HOSTCUDA_STORE(name)                                    \
  template <typename T>                                         \
  inline void name(T* address, std::type_identity_t<T> value) { \
    *address = value;                                           \
  }

HOSTCUDA_LOAD(__ldg)
HOSTCUDA_LOAD(__ldca)
HOSTCUDA_LOAD(__ldcg)
HOSTCUDA_LOAD(__ldcs)
HOSTCUDA_LOAD(__ldcv)
HOSTCUDA_LOAD(__ldlu)
HOSTCUDA_STORE(__stwb)
HOSTCUDA_STORE(__stcg)
HOSTCUDA_STORE(__stcs)
HOSTCUDA_STORE(__stwt)

#undef HOSTCUDA_LOAD
#undef HOSTCUDA_STORE

// Gives the kernel up.
void __trap();

// Nanoseconds of a steady clock, standing in for the cycles of a multiprocessor.
long long clock64();
void __nanosleep(unsigned nanoseconds);
