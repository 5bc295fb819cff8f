// CUDA's atomic functions, for the operand types that CUDA has them for. All return the old value.
// They are relaxed in CUDA; here they also acquire and release, because the thread sanitizer does not
// understand the fences (__threadfence) that order them there.
#pragma once

#include <atomic>
#include <concepts>
#include <type_traits>

namespace hostcuda::detail {

template <typename T, typename... Types>
concept OneOf = (std::same_as<T, Types> || ...);

template <typename T>
concept AtomicWord = OneOf<T, int, unsigned, unsigned long long>;
template <typename T>
concept AtomicOrdered = OneOf<T, int, unsigned, unsigned long long, long long>;

// *address = update(*address), as one step.
template <typename T, typename Update>
inline T atomic_update(T* address, Update update) {
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_relaxed);
  while (!target.compare_exchange_weak(old, update(old), std::memory_order_acq_rel)) {
  }
  return old;
}

}  // namespace hostcuda::detail

template <hostcuda::detail::OneOf<int, unsigned, unsigned long long, float, double> T>
inline T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_acq_rel);
}

template <hostcuda::detail::OneOf<int, unsigned> T>
inline T atomicSub(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_sub(value, std::memory_order_acq_rel);
}

template <hostcuda::detail::OneOf<int, unsigned, unsigned long long, float> T>
inline T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value, std::memory_order_acq_rel);
}

template <hostcuda::detail::OneOf<int, unsigned, unsigned long long, unsigned short> T>
inline T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(compare, value, std::memory_order_acq_rel);
  return compare;  // holds the old value, equal or not
}

template <hostcuda::detail::AtomicOrdered T>
inline T atomicMin(T* address, std::type_identity_t<T> value) {
  return hostcuda::detail::atomic_update(address, [value](T old) { return value < old ? value : old; });
}

template <hostcuda::detail::AtomicOrdered T>
inline T atomicMax(T* address, std::type_identity_t<T> value) {
  return hostcuda::detail::atomic_update(address, [value](T old) { return old < value ? value : old; });
}

template <hostcuda::detail::AtomicWord T>
inline T atomicAnd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_and(value, std::memory_order_acq_rel);
}

template <hostcuda::detail::AtomicWord T>
inline T atomicOr(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_or(value, std::memory_order_acq_rel);
}

template <hostcuda::detail::AtomicWord T>
inline T atomicXor(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_xor(value, std::memory_order_acq_rel);
}

// Counts up to `limit`, then starts again at 0.
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return hostcuda::detail::atomic_update(address,
                                         [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}

// Counts down to 0, then starts again at `limit`.
inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return hostcuda::detail::atomic_update(
      address, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

// Atomic for the block, or for host and all devices: on a CPU there is one kind.
#define HOSTCUDA_SCOPED(name)                               \
  template <typename T, typename... Values>                 \
  inline auto name##_block(T* address, Values... values) {  \
    return name(address, values...);                        \
  }                                                         \
  template <typename T, typename... Values>                 \
  inline auto name##_system(T* address, Values... values) { \
    return name(address, values...);                        \
  }

HOSTCUDA_SCOPED(atomicAdd)
HOSTCUDA_SCOPED(atomicSub)
HOSTCUDA_SCOPED(atomicExch)
HOSTCUDA_SCOPED(atomicCAS)
HOSTCUDA_SCOPED(atomicMin)
HOSTCUDA_SCOPED(atomicMax)
HOSTCUDA_SCOPED(atomicAnd)
HOSTCUDA_SCOPED(atomicOr)
HOSTCUDA_SCOPED(atomicXor)
HOSTCUDA_SCOPED(atomicInc)
HOSTCUDA_SCOPED(atomicDec)

#undef HOSTCUDA_SCOPED
