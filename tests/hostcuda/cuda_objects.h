// What the runtime's tests share: owning handles, a switch that a stream waits for, and an order of events.
// CUDA API only, so that the same tests hold on a GPU.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#define ASSERT_CUDA(call)         \
  do {                            \
    ASSERT_EQ(call, cudaSuccess); \
  } while (false)
#define EXPECT_CUDA(call)         \
  do {                            \
    EXPECT_EQ(call, cudaSuccess); \
  } while (false)

// The error of the call, and that it was left as the last error, which is then cleared.
#define EXPECT_CUDA_ERROR(call, error)    \
  do {                                    \
    EXPECT_EQ(call, error);               \
    EXPECT_EQ(cudaGetLastError(), error); \
  } while (false)

inline int device_count() {
  int count = 0;
  EXPECT_CUDA(cudaGetDeviceCount(&count));
  return count;
}

#define SKIP_BELOW_DEVICES(n) \
  if (device_count() < (n)) GTEST_SKIP() << "needs " << (n) << " devices, found " << device_count()

class StreamHandle {
 public:
  explicit StreamHandle(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream_, flags));
  }
  ~StreamHandle() {
    if (stream_ != nullptr) {
      EXPECT_CUDA(cudaStreamDestroy(stream_));
    }
  }
  StreamHandle(const StreamHandle&) = delete;
  StreamHandle& operator=(const StreamHandle&) = delete;
  operator cudaStream_t() const { return stream_; }
  cudaStream_t release() { return std::exchange(stream_, nullptr); }

 private:
  cudaStream_t stream_ = nullptr;
};

class EventHandle {
 public:
  explicit EventHandle(unsigned flags = cudaEventDisableTiming) {
    EXPECT_CUDA(cudaEventCreateWithFlags(&event_, flags));
  }
  ~EventHandle() { EXPECT_CUDA(cudaEventDestroy(event_)); }
  EventHandle(const EventHandle&) = delete;
  EventHandle& operator=(const EventHandle&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// `count` ints in device memory of the current device.
class DeviceInts {
 public:
  explicit DeviceInts(size_t count) : count_(count) { EXPECT_CUDA(cudaMalloc(&data_, count * sizeof(int))); }
  ~DeviceInts() { EXPECT_CUDA(cudaFree(data_)); }
  DeviceInts(const DeviceInts&) = delete;
  DeviceInts& operator=(const DeviceInts&) = delete;
  int* get() const { return data_; }
  size_t bytes() const { return count_ * sizeof(int); }
  void set(const std::vector<int>& values) {
    EXPECT_CUDA(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  std::vector<int> values() const {
    std::vector<int> result(count_);
    EXPECT_CUDA(cudaMemcpy(result.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return result;
  }

 private:
  size_t count_;
  int* data_ = nullptr;
};

// Pinned host ints.
class PinnedInts {
 public:
  explicit PinnedInts(size_t count) : count_(count) {
    EXPECT_CUDA(cudaMallocHost(&data_, count * sizeof(int)));
    for (size_t i = 0; i < count; ++i) data_[i] = 0;
  }
  ~PinnedInts() { EXPECT_CUDA(cudaFreeHost(data_)); }
  PinnedInts(const PinnedInts&) = delete;
  PinnedInts& operator=(const PinnedInts&) = delete;
  int* get() const { return data_; }
  int& operator[](size_t i) const { return data_[i]; }
  size_t bytes() const { return count_ * sizeof(int); }

 private:
  size_t count_;
  int* data_ = nullptr;
};

// Holds a stream until the host opens it: what is enqueued behind it certainly has not run yet. It waits in a
// host function, and CUDA may run these one at a time: while a gate is closed no other host function need
// come to its turn, and what a test waits for meanwhile must be device work.
class Gate {
 public:
  ~Gate() { open(); }
  void hold(cudaStream_t stream) {
    EXPECT_CUDA(cudaLaunchHostFunc(stream, [](void* self) { static_cast<Gate*>(self)->wait(); }, this));
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    // Much longer than any test runs: a test that forgets to open it fails, and does not hang.
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [this] { return open_; }));
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// Writes down the order in which streams come to certain points.
class Diary {
 public:
  void note(cudaStream_t stream, int what) {
    auto* const entry = new Entry{this, what};
    EXPECT_CUDA(cudaLaunchHostFunc(
        stream,
        [](void* argument) {
          auto* const written = static_cast<Entry*>(argument);
          const std::lock_guard lock(written->diary->mutex_);
          written->diary->entries_.push_back(written->what);
          delete written;
        },
        entry));
  }
  std::vector<int> entries() {
    const std::lock_guard lock(mutex_);
    return entries_;
  }

 private:
  struct Entry {
    Diary* diary;
    int what;
  };
  std::mutex mutex_;
  std::vector<int> entries_;
};

inline std::vector<int> counting(size_t count, int first = 0) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}
