// The arithmetic of collectives: the elements at one index of several buffers become one. T is float,
// __nv_bfloat16, __half or int32_t; half types are computed in float and rounded once, where they are
// written. Buffers may lie on any device whose memory the stream's device may access. n may be 0.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

namespace lockstep::kernels {

enum class Combine { sum, max, min };  // a NaN stays one

// destination[i] = destination[i] combined with source[i]
template <typename T>
void combine_into(Combine how, T* destination, const T* source, int64_t n, cudaStream_t stream);

// Writes into every buffers[r][i] the combination of all of them, from the first to the last, times `factor`
// (1 for int32_t). There may be 2 to kMostBuffers.
inline constexpr int kMostBuffers = 64;
template <typename T>
void combine_all(Combine how, const std::vector<T*>& buffers, float factor, int64_t n, cudaStream_t stream);

// x[i] *= factor; T is not int32_t
template <typename T>
void scale(T* x, float factor, int64_t n, cudaStream_t stream);

}  // namespace lockstep::kernels
