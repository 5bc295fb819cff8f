#include "parallel/device_threads.h"

#include <optional>

#include "core/autograd.h"

namespace lockstep::parallel {

DeviceThreads::DeviceThreads(const std::vector<Device>& devices) : devices_(devices) {
  std::map<int, size_t> group_of;
  for (size_t r = 0; r < devices.size(); ++r) {
    const auto [found, created] = group_of.try_emplace(devices[r].physical(), groups_.size());
    if (created) groups_.emplace_back();
    groups_[found->second].push_back(r);
  }
  for (size_t group = 1; group < groups_.size(); ++group)
    threads_.emplace_back([this, group] { serve(group); });
}

DeviceThreads::~DeviceThreads() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
}

void DeviceThreads::run(const std::vector<bool>& runs, const std::function<void(size_t)>& work) {
  {
    const std::lock_guard lock(mutex_);
    runs_ = &runs;
    work_ = &work;
    without_grad_ = NoGrad::in_force();
    errors_.assign(runs.size(), nullptr);
    at_work_ = threads_.size();
    ++round_;
  }
  changed_.notify_all();
  work_on(0);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return at_work_ == 0; });
  }
  for (const std::exception_ptr& error : errors_)
    if (error) std::rethrow_exception(error);
}

void DeviceThreads::serve(size_t group) {
  for (uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || round_ != seen; });
      if (ends_) return;
      seen = round_;
    }
    work_on(group);
    {
      const std::lock_guard lock(mutex_);
      --at_work_;
    }
    changed_.notify_all();
  }
}

void DeviceThreads::work_on(size_t group) {
  std::optional<NoGrad> no_grad;
  if (without_grad_) no_grad.emplace();
  for (const size_t r : groups_[group]) {
    if (!(*runs_)[r]) continue;
    try {
      const DeviceGuard guard(devices_[r]);
      (*work_)(r);
    } catch (...) {
      errors_[r] = std::current_exception();
      return;  // as without threads
    }
  }
}

}  // namespace lockstep::parallel
