// A host thread per physical device, so that eight GPUs are not fed one after the other: to enqueue a step of
// one replica takes longer than a GPU needs for a small one. Replicas that share a physical device follow
// each other in one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/device.h"

namespace lockstep::parallel {

class DeviceThreads {
 public:
  explicit DeviceThreads(const std::vector<Device>& devices);
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  // Calls work(r) for every replica with runs[r], with its device current and under the caller's NoGrad, and
  // returns when all are done. Where some throw, the error of the first replica among them is thrown, after
  // the others have ended. Called by one thread at a time.
  void run(const std::vector<bool>& runs, const std::function<void(size_t)>& work);

 private:
  void serve(size_t group);
  void work_on(size_t group);

  const std::vector<Device> devices_;
  std::vector<std::vector<size_t>> groups_;  // replicas by physical device; the first is the caller's
  std::vector<std::exception_ptr> errors_;   // by replica

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  const std::vector<bool>* runs_ = nullptr;
  const std::function<void(size_t)>* work_ = nullptr;
  bool without_grad_ = false;
  uint64_t round_ = 0;
  size_t at_work_ = 0;  // threads
  bool ends_ = false;
  std::vector<std::jthread> threads_;  // last: joined before the rest goes
};

}  // namespace lockstep::parallel
