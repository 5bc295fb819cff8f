#include "hostcuda/src/runtime/share.h"

#include <algorithm>
#include <chrono>

#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/report.h"
#include "hostcuda/src/runtime/scheduler.h"

namespace hostcuda {
namespace {

// Waking a sleeping worker costs tens of microseconds: worth it only where a slice takes that long.
constexpr auto kWorthWaking = std::chrono::microseconds(20);

// Runs the next slice; false where none is left. An exception must not leave a helper's thread: the first
// error of any slice becomes the job's.
bool run_slice(SharedJob& job) {
  const int slice = job.next.fetch_add(1, std::memory_order_relaxed);
  if (slice >= job.slices) return false;
  cudaError_t error;
  try {
    error = job.slice(slice);
  } catch (...) {
    error = job.error == cudaSuccess ? error_of_exception("a kernel") : cudaErrorLaunchFailure;
  }
  cudaError_t none = cudaSuccess;
  if (error != cudaSuccess) job.error.compare_exchange_strong(none, error);
  return true;
}

}  // namespace

void help(SharedJob& job) {
  while (run_slice(job)) {
  }
  job.helpers.fetch_sub(1, std::memory_order_release);
}

cudaError_t share(Device& device, int slices, const std::function<cudaError_t(int)>& slice) {
  SharedJob job{slice, slices};
  if (slices <= 1) return slice(0);
  {
    Hold hold;
    device.jobs.push_back(&job);
    for (Idle* idle : {&device.idle, &device.idle_helpers})
      idle->signal.fetch_add(1, std::memory_order_release);
  }
  const auto start = std::chrono::steady_clock::now();
  run_slice(job);
  if (std::chrono::steady_clock::now() - start > kWorthWaking &&
      job.next.load(std::memory_order_relaxed) < slices) {
    for (Idle* idle : {&device.idle, &device.idle_helpers}) {
      int sleeping;
      {
        Hold hold;
        sleeping = idle->sleeping;
      }
      if (sleeping > 0) futex_wake(idle->signal, std::min(sleeping, slices));
    }
  }
  while (run_slice(job)) {
  }
  {
    Hold hold;
    device.jobs.erase(std::find(device.jobs.begin(), device.jobs.end(), &job));
  }
  for (int spins = 0; job.helpers.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < 256)
      pause_core();
    else
      sched_yield();
  }
  return job.error;
}

cudaError_t share_each(Device& device, int64_t count, const std::function<void(int)>& f) {
  const auto slice = [&](int i) {
    f(i);
    return cudaSuccess;
  };
  if (config().threads > 1) return share(device, static_cast<int>(count), slice);
  for (int i = 0; i < static_cast<int>(count); ++i) f(i);
  return cudaSuccess;
}

}  // namespace hostcuda
