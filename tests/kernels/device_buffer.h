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
  explicit DeviceBuffer(const std::vector<T>& values) : size_(values.size()) {
    LOCKSTEP_CUDA(cudaMalloc(reinterpret_cast<void**>(&block_), (size_ + 2 * kGuard) * sizeof(T)));
    LOCKSTEP_CUDA(cudaMemset(block_, kGuardByte, (size_ + 2 * kGuard) * sizeof(T)));
    if (size_ > 0)
      LOCKSTEP_CUDA(cudaMemcpy(data(), values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceBuffer(size_t size, T value) : DeviceBuffer(std::vector<T>(size, value)) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(block_); }

  T* data() const { return block_ + kGuard; }
  size_t size() const { return size_; }

  // Waits for the device, checks the guards and returns the values.
  std::vector<T> to_host() const {
    std::vector<T> all(size_ + 2 * kGuard);
    LOCKSTEP_CUDA(cudaDeviceSynchronize());
    LOCKSTEP_CUDA(cudaMemcpy(all.data(), block_, all.size() * sizeof(T), cudaMemcpyDeviceToHost));
    T guard;
    std::memset(&guard, kGuardByte, sizeof(T));
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(std::memcmp(&all[i], &guard, sizeof(T)), 0)
          << "written " << kGuard - i << " before the array";
      EXPECT_EQ(std::memcmp(&all[kGuard + size_ + i], &guard, sizeof(T)), 0)
          << "written " << i << " behind the array";
    }
    return {all.begin() + kGuard, all.end() - kGuard};
  }

 private:
  static constexpr size_t kGuard = 64;  // keeps data() aligned as cudaMalloc's result is for 4-byte types
  static constexpr int kGuardByte = 0x5a;
  T* block_ = nullptr;
  size_t size_;
};

}  // namespace lockstep::test
