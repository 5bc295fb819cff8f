// A device array for kernel tests: made from host values, read back as host values, with guard elements on
// both sides that catch a kernel writing beside its output.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/check.h"

namespace lockstep::test {

template <typename T>
class DeviceBuffer {
 public:
  // The values start `offset` elements behind an address aligned as cudaMalloc's.
  explicit DeviceBuffer(const std::vector<T>& values, size_t offset = 0)
      : size_(values.size()), front_(kGuard + offset) {
    const size_t bytes = (front_ + size_ + kGuard) * sizeof(T);
    LOCKSTEP_CUDA(cudaMalloc(reinterpret_cast<void**>(&block_), bytes));
    LOCKSTEP_CUDA(cudaMemset(block_, kGuardByte, bytes));
    if (size_ > 0)
      LOCKSTEP_CUDA(cudaMemcpy(data(), values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceBuffer(size_t size, T value) : DeviceBuffer(std::vector<T>(size, value)) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(block_); }

  T* data() const { return block_ + front_; }
  size_t size() const { return size_; }

  // Waits for the device, checks the guards and returns the values.
  std::vector<T> to_host() const {
    std::vector<T> all(front_ + size_ + kGuard);
    LOCKSTEP_CUDA(cudaDeviceSynchronize());
    LOCKSTEP_CUDA(cudaMemcpy(all.data(), block_, all.size() * sizeof(T), cudaMemcpyDeviceToHost));
    T guard;
    std::memset(static_cast<void*>(&guard), kGuardByte, sizeof(T));
    for (size_t i = 0; i < front_; ++i)
      EXPECT_EQ(std::memcmp(&all[i], &guard, sizeof(T)), 0)
          << "written " << front_ - i << " before the array";
    for (size_t i = 0; i < kGuard; ++i)
      EXPECT_EQ(std::memcmp(&all[front_ + size_ + i], &guard, sizeof(T)), 0)
          << "written " << i << " behind the array";
    return {all.end() - static_cast<std::ptrdiff_t>(kGuard + size_), all.end() - kGuard};
  }

 private:
  static constexpr size_t kGuard = 64;  // keeps data() aligned as cudaMalloc's result is for 4-byte types
  static constexpr int kGuardByte = 0x5a;
  T* block_ = nullptr;
  size_t size_;
  size_t front_;  // guard elements before the values
};

}  // namespace lockstep::test
