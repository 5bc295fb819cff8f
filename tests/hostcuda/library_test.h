// What the cuBLAS and cuDNN tests share: device memory that frees itself, seeded numbers, and a comparison
// whose tolerance follows from the arithmetic.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "kernels/check.h"

// Elements of T on the current device, with a copy's worth of values to start with.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    LOCKSTEP_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), (count_ + 1) * sizeof(T)));
    LOCKSTEP_CUDA(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return data_; }
  // Waits for the whole device.
  std::vector<T> host() const {
    std::vector<T> values(count_);
    LOCKSTEP_CUDA(cudaDeviceSynchronize());
    LOCKSTEP_CUDA(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

inline std::vector<float> random_floats(size_t count, std::mt19937& generator, float low = -1) {
  std::uniform_real_distribution<float> uniform(low, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

inline std::vector<float> nans(size_t count) {
  return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN());
}

// A sum of products in double, and what float32 may make of it.
struct Sum {
  double value = 0;
  double magnitude = 0;
  int terms = 0;

  void add(double term) {
    value += term;
    magnitude += std::fabs(term);
    ++terms;
  }
  // Any order of n float32 products and additions errs by at most n eps times the sum of magnitudes, to
  // first order; 3 more for alpha, beta and the last addition; 2 for the higher orders.
  double tolerance() const {
    return 2 * std::numeric_limits<float>::epsilon() * (terms + 3) * magnitude +
           std::numeric_limits<float>::min();
  }
};

inline void expect_close(const std::vector<float>& got, const std::vector<Sum>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i].value, wanted[i].tolerance()) << "at element " << i;
}

inline std::vector<__nv_bfloat16> to_bfloat16(const std::vector<float>& values) {
  std::vector<__nv_bfloat16> result;
  for (const float value : values) result.push_back(__float2bfloat16_rn(value));
  return result;
}

inline std::vector<float> to_floats(const std::vector<__nv_bfloat16>& values) {
  std::vector<float> result;
  for (const __nv_bfloat16 value : values) result.push_back(__bfloat162float(value));
  return result;
}

// A float32 sum that was rounded to bfloat16 once: 8 bits, so by a relative 2^-8 at most. An algorithm that
// rounds more than a plain sum may err by `epsilons` of the sum of magnitudes.
inline void expect_close(const std::vector<__nv_bfloat16>& got, const std::vector<Sum>& wanted,
                         double epsilons = 0) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double sum = std::max(wanted[i].tolerance(),
                                epsilons * std::numeric_limits<float>::epsilon() * wanted[i].magnitude);
    ASSERT_NEAR(__bfloat162float(got[i]), wanted[i].value, sum + (std::fabs(wanted[i].value) + sum) / 256)
        << "at element " << i;
  }
}
