// Copies by all threads of a group together. They are done when the call returns; wait() is then a barrier
// alone.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

namespace cooperative_groups {

// `bytes` may be a size that states an alignment (cuda::aligned_size_t).
template <typename Group>
void memcpy_async(const Group& group, void* destination, const void* source, size_t bytes) {
  auto* to = static_cast<char*>(destination);
  const auto* from = static_cast<const char*>(source);
  const bool aligned =
      (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % sizeof(uint4) == 0;
  const size_t vectors = aligned ? bytes / sizeof(uint4) : 0;
  for (size_t i = group.thread_rank(); i < vectors; i += group.size())
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
  for (size_t i = vectors * sizeof(uint4) + group.thread_rank(); i < bytes; i += group.size())
    to[i] = from[i];
}

template <typename Group, typename T>
void memcpy_async(const Group& group, T* destination, size_t room, const T* source, size_t count) {
  memcpy_async(group, static_cast<void*>(destination), static_cast<const void*>(source),
               (count < room ? count : room) * sizeof(T));
}

template <typename Group>
void wait(const Group& group, const detail::Site& site = detail::Site::current()) {
  group.sync(site);
}

template <unsigned kStages, typename Group>
void wait_prior(const Group& group, const detail::Site& site = detail::Site::current()) {
  group.sync(site);
}

}  // namespace cooperative_groups
