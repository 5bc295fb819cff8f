#include "hostcuda/src/runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/lock.h"

namespace hostcuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr uint32_t kCanary = 0x7FC5C5C5;  // as a float: a NaN that no arithmetic makes
constexpr unsigned char kFresh = 0xFF;    // as floats: NaN
constexpr size_t kQuarantine = 8192;      // freed allocations that stay inaccessible, in checked mode

struct Allocation {
  size_t size;
  int device;
  bool live;
  MemoryKind kind = MemoryKind::allocated;
  // Checked mode: the whole pages between the two guard pages. The allocation is their last `size` bytes;
  // what is before it holds canaries.
  unsigned char* pages = nullptr;
  size_t page_bytes = 0;
};

struct Books {
  SpinLock lock;
  std::map<uintptr_t, Allocation> allocations;  // by first address
  std::deque<uintptr_t> quarantine;
  size_t in_use[64] = {};
  uint64_t accessible = 0;
};

Books& books() {
  static Books* const books = new Books;
  return *books;
}

constexpr size_t kNearby = 4096;

size_t page_size() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// What lies between two allocations. As a rule nothing is added: the address sanitizer sees overruns. The
// profile looks at addresses, and a little too far must not be another allocation.
size_t gap() {
  return config().records() ? kNearby : 0;
}

bool may_touch(const Allocation& allocation, uint64_t mask) {
  return allocation.device == kPinned || (mask >> allocation.device & 1) != 0;
}

// From the beginning of a page to `end`.
void fill_with_canaries(unsigned char* page, const unsigned char* end) {
  for (; page < end; page += sizeof kCanary)
    std::memcpy(page, &kCanary, std::min<size_t>(sizeof kCanary, static_cast<size_t>(end - page)));
}

// The first byte in [page, end) that is no longer a canary's; `end` where all are.
unsigned char* find_damage(unsigned char* page, unsigned char* end) {
  for (; page < end; page += sizeof kCanary) {
    const size_t bytes = std::min<size_t>(sizeof kCanary, static_cast<size_t>(end - page));
    if (std::memcmp(page, &kCanary, bytes) == 0) continue;
    for (size_t i = 0; i < bytes; ++i)
      if (std::memcmp(page + i, reinterpret_cast<const unsigned char*>(&kCanary) + i, 1) != 0)
        return page + i;
  }
  return end;
}

// Guard page, canaries, the allocation, guard page. The end comes first: an allocation is aligned as its size
// is.
void* map_guarded(Allocation& allocation, uint64_t accessible) {
  const size_t page = page_size();
  allocation.page_bytes = (allocation.size + page - 1) / page * page;
  void* mapping = mmap(nullptr, allocation.page_bytes + 2 * page, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  allocation.pages = static_cast<unsigned char*>(mapping) + page;
  mprotect(allocation.pages, allocation.page_bytes, PROT_READ | PROT_WRITE);
  unsigned char* const base = allocation.pages + allocation.page_bytes - allocation.size;
  fill_with_canaries(allocation.pages, base);
  std::memset(base, kFresh, allocation.size);
  if (!may_touch(allocation, accessible)) mprotect(allocation.pages, allocation.page_bytes, PROT_NONE);
  return base;
}

}  // namespace

cudaError_t allocate_memory(int device, size_t bytes, void** pointer, MemoryKind kind) {
  Books& all = books();
  if (device != kPinned) {
    const std::lock_guard hold(all.lock);
    if (bytes > config().memory || all.in_use[device] > config().memory - bytes)
      return cudaErrorMemoryAllocation;
    all.in_use[device] += bytes;
  }
  Allocation allocation{bytes, device, true, kind};
  void* block = nullptr;
  if (config().checked) {
    const std::lock_guard hold(all.lock);  // the mapping's protection must fit what is accessible now
    block = map_guarded(allocation, all.accessible);
    if (block != nullptr) all.allocations[reinterpret_cast<uintptr_t>(block)] = allocation;
  } else if (posix_memalign(&block, kAlignment, bytes + gap()) == 0) {
    const std::lock_guard hold(all.lock);
    all.allocations[reinterpret_cast<uintptr_t>(block)] = allocation;
  } else {
    block = nullptr;
  }
  if (block == nullptr) {
    const std::lock_guard hold(all.lock);
    if (device != kPinned) all.in_use[device] -= bytes;
    return cudaErrorMemoryAllocation;
  }
  *pointer = block;
  return cudaSuccess;
}

cudaError_t register_memory(void* pointer, size_t bytes, MemoryKind kind) {
  Books& all = books();
  const std::lock_guard hold(all.lock);
  all.allocations[reinterpret_cast<uintptr_t>(pointer)] = Allocation{bytes, kPinned, true, kind};
  return cudaSuccess;
}

bool forget_memory(void* pointer, bool pinned, Forgotten* forgotten) {
  Books& all = books();
  const std::lock_guard hold(all.lock);
  const auto found = all.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == all.allocations.end() || !found->second.live || (found->second.device == kPinned) != pinned)
    return false;
  Allocation& allocation = found->second;
  if (!pinned) all.in_use[allocation.device] -= allocation.size;
  if (allocation.pages == nullptr) {
    *forgotten = {allocation.kind == MemoryKind::registered ? nullptr : pointer, 0};
    all.allocations.erase(found);
    return true;
  }
  allocation.live = false;
  all.quarantine.push_back(found->first);
  *forgotten = {allocation.pages, allocation.page_bytes};
  if (all.quarantine.size() > kQuarantine) {
    const auto oldest = all.allocations.find(all.quarantine.front());
    munmap(oldest->second.pages - page_size(), oldest->second.page_bytes + 2 * page_size());
    all.allocations.erase(oldest);
    all.quarantine.pop_front();
  }
  return true;
}

void return_memory(const Forgotten& forgotten) {
  if (forgotten.mapped == 0) {
    std::free(forgotten.block);
    return;
  }
  madvise(forgotten.block, forgotten.mapped, MADV_DONTNEED);
  mprotect(forgotten.block, forgotten.mapped, PROT_NONE);
}

size_t memory_in_use(int device) {
  Books& all = books();
  const std::lock_guard hold(all.lock);
  return all.in_use[device];
}

AddressInfo describe_address(const void* address) noexcept {
  Books& all = books();
  int tries = 0;
  while (!all.lock.try_lock()) {
    if (++tries > 1000000) return {};
    if (tries > 64) sched_yield();  // the holder may have lost its core
  }
  const std::lock_guard hold(all.lock, std::adopt_lock);
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  const auto described = [](uintptr_t base, const Allocation& allocation, AddressInfo::State state) {
    return AddressInfo{state, allocation.device, allocation.kind, reinterpret_cast<const void*>(base),
                       allocation.size};
  };
  auto after = all.allocations.upper_bound(at);
  if (after != all.allocations.begin()) {
    const auto& [base, allocation] = *std::prev(after);
    if (at < base + allocation.size)
      return described(base, allocation,
                       allocation.live ? AddressInfo::State::live : AddressInfo::State::freed);
    if (allocation.pages != nullptr &&
        at < reinterpret_cast<uintptr_t>(allocation.pages) + allocation.page_bytes + page_size())
      return described(base, allocation, AddressInfo::State::guard);
  }
  if (after != all.allocations.end() && after->second.pages != nullptr &&
      at >= reinterpret_cast<uintptr_t>(after->second.pages) - page_size())
    return described(after->first, after->second, AddressInfo::State::guard);
  return {};
}

AddressInfo nearest_allocation(const void* address) {
  Books& all = books();
  const std::lock_guard hold(all.lock);
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  const auto after = all.allocations.upper_bound(at);
  const auto found = [](const auto& entry) {
    const auto& [base, allocation] = entry;
    AddressInfo info;
    info.state = AddressInfo::State::guard;
    info.device = allocation.device;
    info.base = reinterpret_cast<const void*>(base);
    info.size = allocation.size;
    return info;
  };
  if (after != all.allocations.begin()) {
    const auto before = std::prev(after);
    if (at < before->first + before->second.size + kNearby) return found(*before);
  }
  if (after != all.allocations.end() && at >= after->first - kNearby) return found(*after);
  return {};
}

void set_accessible(uint64_t mask) {
  Books& all = books();
  const std::lock_guard hold(all.lock);
  if (mask == all.accessible) return;
  for (const auto& [base, allocation] : all.allocations) {
    const bool before = may_touch(allocation, all.accessible), now = may_touch(allocation, mask);
    if (allocation.live && before != now)
      mprotect(allocation.pages, allocation.page_bytes, now ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  all.accessible = mask;
}

std::string find_overruns() {
  Books& all = books();
  const std::lock_guard hold(all.lock);
  std::string found;
  for (const auto& [base, allocation] : all.allocations) {
    if (!allocation.live || allocation.pages == nullptr || !may_touch(allocation, all.accessible)) continue;
    unsigned char* const data = reinterpret_cast<unsigned char*>(base);
    unsigned char* const damage = find_damage(allocation.pages, data);
    if (damage == data) continue;
    if (found.empty()) {
      char text[160];
      std::snprintf(text, sizeof text, "wrote %zu bytes before the allocation of %zu bytes at %p on %s",
                    static_cast<size_t>(data - damage), allocation.size, reinterpret_cast<void*>(base),
                    allocation.device == kPinned ? "the host"
                                                 : ("device " + std::to_string(allocation.device)).c_str());
      found = text;
    }
    fill_with_canaries(allocation.pages, data);
  }
  return found;
}

}  // namespace hostcuda
