// Warp shuffles, votes and __syncwarp: a rendezvous of exactly the lanes of a mask. The last lane to come
// computes the result of all, so that a lane may go on to its next operation before the others have woken.
#include <algorithm>
#include <bit>
#include <cstdio>

#include "hostcuda/src/kernels/block.h"
#include "hostcuda/src/runtime/report.h"

namespace hostcuda {

namespace {

// What a lane gets that reads a lane which is not there: NaN as a float, so that it shows.
constexpr uint64_t kAbsentValue = ~uint64_t{0};

std::string hexadecimal(unsigned mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

}  // namespace

uint64_t Block::warp_rendezvous(detail::WarpOperation operation, unsigned mask, uint64_t value, int source,
                                const detail::Site& site) {
  const unsigned own = 1u << lane();
  const int warp_index = current_ / kWarpLanes;
  Thread& self = threads_[current_];
  if ((mask & own) == 0) {
    if (checked_)
      abandon(cudaErrorLaunchFailure, "warp operation by a lane outside its own mask",
              "lane " + std::to_string(lane()) + " calls with mask " + hexadecimal(mask) + " at " +
                  format_site(site));
    mask |= own;
  }
  self.wait = Wait::warp;
  self.site = site;
  self.operation = operation;
  self.mask = mask;
  self.source = source;
  self.value = value;
  warps_[warp_index].waiting |= own;

  const int first_lane = warp_index * kWarpLanes + std::countr_zero(mask);
  uint64_t* sync = &warp_sync_[first_lane][warp_generation_[first_lane] % 2];
  sanitizer_release(sync);
  if (!complete_warp(warp_index, mask)) suspend();
  sanitizer_acquire(sync);
  return self.result;
}

// Lets the lanes of `mask` go on if all that have not exited are there, with the same mask; false if not.
bool Block::complete_warp(int warp_index, unsigned mask) {
  Warp& warp = warps_[warp_index];
  const unsigned lanes = mask & warp.live;
  if ((warp.waiting & lanes) != lanes) return false;
  const int base = warp_index * kWarpLanes;
  const int first_thread = base + std::countr_zero(lanes);
  const Thread& first = threads_[first_thread];
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int thread = base + std::countr_zero(rest);
    const Thread& other = threads_[thread];
    const bool same_call = other.operation == first.operation && other.mask == mask;
    // Lanes may meet in different __syncwarp()s, but not in different shuffles.
    const bool same_place =
        first.operation == detail::WarpOperation::sync || other.site.line() == first.site.line();
    if (same_call && (same_place || !checked_)) continue;
    if (checked_)
      abandon_thread(thread, cudaErrorLaunchFailure, "warp operation with absent lanes",
                     "calls with mask " + hexadecimal(other.mask) + " at " + format_site(other.site) +
                         " while thread " + format_index(index_[first_thread]) + " calls with mask " +
                         hexadecimal(first.mask) + " at " + format_site(first.site));
    return false;
  }
  const int exists = std::min(kWarpLanes, count_ - base);
  const unsigned existing = exists == kWarpLanes ? ~0u : (1u << exists) - 1;
  if (checked_ && (mask & existing & ~warp.live) != 0)
    warn_once(warned_exited_in_mask_, "warning: warp operation that names lanes which have ended",
              "mask " + hexadecimal(mask) + ", but " + hexadecimal(mask & existing & ~warp.live) +
                  " have ended, at " + format_site(first.site));

  if (first.operation == detail::WarpOperation::shuffle) finish_shuffle(warp_index, lanes);
  if (first.operation == detail::WarpOperation::vote) {
    unsigned votes = 0;
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1)
      if (threads_[base + std::countr_zero(rest)].value != 0) votes |= rest & -rest;
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1)
      threads_[base + std::countr_zero(rest)].result = votes;
  }
  if (observer_ != nullptr) observer_->warp_met(warp_index, lanes, mask & ~warp.live);
  ++warp_generation_[base + std::countr_zero(mask)];
  warp.waiting &= ~lanes;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) mark_runnable(base + std::countr_zero(rest));
  return true;
}

// The lanes that are at one place together are those that come there before all others of the warp have ended
// or wait for something else.
unsigned Block::converge(const detail::Site& site) {
  Thread& self = threads_[current_];
  self.wait = Wait::convergence;
  self.site = site;
  warps_[current_ / kWarpLanes].converging |= 1u << lane();
  suspend();
  return self.mask;
}

// To be called when a thread of the warp has stopped: if none can run, those that wait at one place go on
// together.
void Block::complete_convergence(int warp_index) {
  Warp& warp = warps_[warp_index];
  if (warp.converging == 0) return;
  const int base = warp_index * kWarpLanes;
  for (int thread = base; thread < std::min(base + kWarpLanes, count_); ++thread)
    if (is_runnable(thread)) return;
  const detail::Site site = threads_[base + std::countr_zero(warp.converging)].site;
  unsigned together = 0;
  for (unsigned rest = warp.converging; rest != 0; rest &= rest - 1)
    if (same_site(threads_[base + std::countr_zero(rest)].site, site)) together |= rest & -rest;
  warp.converging &= ~together;
  for (unsigned rest = together; rest != 0; rest &= rest - 1) {
    const int thread = base + std::countr_zero(rest);
    threads_[thread].mask = together;
    mark_runnable(thread);
  }
}

void Block::finish_shuffle(int warp_index, unsigned lanes) {
  const int base = warp_index * kWarpLanes;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int thread = base + std::countr_zero(rest);
    Thread& reader = threads_[thread];
    const bool present =
        reader.source >= 0 && reader.source < kWarpLanes && (lanes >> reader.source & 1) != 0;
    if (present) {
      reader.result = threads_[base + reader.source].value;
      continue;
    }
    if (checked_)
      abandon_thread(thread, cudaErrorLaunchFailure, "shuffle from an absent lane",
                     "reads lane " + std::to_string(reader.source) + ", but only the lanes " +
                         hexadecimal(lanes) + " take part, at " + format_site(reader.site));
    reader.result = kAbsentValue;
  }
}

}  // namespace hostcuda
