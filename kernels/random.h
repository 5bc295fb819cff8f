// Random numbers, and the mask of dropout, whose value depends on (seed, sequence, index) alone: Philox
// 4x32-10 (Salmon et al., 2011), for every number of threads or devices. Uniform numbers and the mask have
// the same bits on every machine, a GPU included. Normal ones have them on one machine only: they come by way
// of the logarithm, sine and cosine of its own library, whose last bits differ from another's.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

// x[i] uniform in [low, high).
void random_uniform(float* x, int64_t n, float low, float high, uint64_t seed, uint64_t sequence,
                    cudaStream_t stream);

// x[i] normal with the given mean and standard deviation (Box-Muller).
void random_normal(float* x, int64_t n, float mean, float stddev, uint64_t seed, uint64_t sequence,
                   cudaStream_t stream);

// y[i] = x[i] / (1 - probability) where element i of (seed, sequence) is kept, else 0; 0 <= probability < 1.
// The way back is the same function of the gradient. x and y may be the same.
template <typename T>
void dropout(const T* x, T* y, int64_t n, float probability, uint64_t seed, uint64_t sequence,
             cudaStream_t stream);

}  // namespace lockstep::kernels
