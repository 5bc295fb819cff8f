// Batch normalisation (Ioffe and Szegedy, 2015) of x: [rows, channels], NHWC with rows = batch * height *
// width:
//   y = (x - mean) * inverse_stddev * gamma + beta, with mean and variance over the rows of each channel.
// Training is batch_norm_statistics, then batch_norm_normalise; inference normalises by the running
// statistics. An addition and a ReLU that follow are done in the same pass. All sums have an order that
// depends on the shape alone; the variance is two-pass. T, of the activations and their gradients, is float
// or
// __nv_bfloat16; everything else is float.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/scratch.h"

namespace lockstep::kernels {

struct BatchNormShape {
  int64_t rows;
  int channels;
};

// PyTorch's conventions: running = (1 - momentum) * running + momentum * new.
struct BatchNormSettings {
  float momentum = 0.1f;
  float epsilon = 1e-5f;
};

// Bytes of a workspace for the statistics and for the sums of the backward pass.
size_t batch_norm_workspace_bytes(const BatchNormShape& shape);

// mean[c], inverse_stddev[c] = 1 / sqrt(variance + epsilon) with the biased variance, and both running
// statistics, that of the variance with the unbiased one. Without rows everything is left as it is; throws
// for one row, which has no variance.
template <typename T>
void batch_norm_statistics(const BatchNormShape& shape, const BatchNormSettings& settings, const T* x,
                           float* mean, float* inverse_stddev, float* running_mean, float* running_variance,
                           const SumScratch& scratch, cudaStream_t stream);

// inverse_stddev[c] = 1 / sqrt(variance[c] + epsilon)
void batch_norm_inverse_stddev(const float* variance, float epsilon, int channels, float* inverse_stddev,
                               cudaStream_t stream);

// y = (x - mean) * inverse_stddev * gamma + beta [+ addend], then 0 where that is negative if `relu`. addend:
// [rows, channels] or null. y may not overlap x; a NaN passes.
template <typename T>
void batch_norm_normalise(const BatchNormShape& shape, const T* x, const float* mean,
                          const float* inverse_stddev, const float* gamma, const float* beta, const T* addend,
                          bool relu, T* y, cudaStream_t stream);

// Where the mean and the variance came from: `batch` if from x itself, so that gradients flow through them.
enum class BatchNormMode { batch, running };

// Gradients of x, gamma and beta, written whole; x, mean, inverse_stddev and gamma as in the forward pass. y:
// the output where a ReLU followed, else null; with it, daddend (or null) gets the gradient of the addend,
// which is that of the ReLU's input. Without rows dgamma and dbeta are 0.
template <typename T>
void batch_norm_backward(const BatchNormShape& shape, BatchNormMode mode, const T* x, const T* y, const T* dy,
                         const float* mean, const float* inverse_stddev, const float* gamma, T* dx,
                         T* daddend, float* dgamma, float* dbeta, const SumScratch& scratch,
                         cudaStream_t stream);

// The same in parts, for a batch whose rows lie in shards on several devices: each makes the statistics of
// its rows, all are merged; each makes its sums of gradients, all are added up; each makes its dx from them.
// With one shard the results are bitwise those of the functions above.

// statistics: [2][channels], the mean of the shard and the sum of squared distances from it; zeros without
// rows.
template <typename T>
void batch_norm_shard_statistics(const BatchNormShape& shape, const T* x, float* statistics,
                                 const SumScratch& scratch, cudaStream_t stream);

// What batch_norm_statistics gives for all shards together, from `statistics`: [shards][2][channels]. Shard s
// has rows[s] rows, and is passed over where that is 0; at most 64 have any. Chan's formula, in the order of
// the shards.
void batch_norm_merge_statistics(int channels, const BatchNormSettings& settings,
                                 const std::vector<int64_t>& rows, const float* statistics, float* mean,
                                 float* inverse_stddev, float* running_mean, float* running_variance,
                                 cudaStream_t stream);

// dgamma and dbeta of a shard; both 0 without rows.
template <typename T>
void batch_norm_gradient_sums(const BatchNormShape& shape, const T* x, const T* y, const T* dy,
                              const float* mean, const float* inverse_stddev, float* dgamma, float* dbeta,
                              const SumScratch& scratch, cudaStream_t stream);

// dx and daddend of a shard from the sums of dgamma and dbeta over all shards, which have `rows_of_all` rows.
template <typename T>
void batch_norm_input_gradient(const BatchNormShape& shape, BatchNormMode mode, int64_t rows_of_all,
                               const T* x, const T* y, const T* dy, const float* mean,
                               const float* inverse_stddev, const float* gamma, const float* dgamma,
                               const float* dbeta, T* dx, T* daddend, cudaStream_t stream);

// One mean and variance from those of replicas that saw rows[r] rows each, `statistics`: [replicas][2]
// [channels], a mean and a variance: with w[r] = rows[r] / sum of rows, mean = sum w[r] mean[r] and variance
// = sum w[r] (variance[r] + (mean[r] - mean)^2). Equal ones stay as they are, bit for bit; without any rows
// nothing is written. At most 64 replicas may have rows.
void batch_norm_combine_running(int channels, const std::vector<int64_t>& rows, const float* statistics,
                                float* mean, float* variance, cudaStream_t stream);

}  // namespace lockstep::kernels
