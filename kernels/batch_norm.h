// Batch normalisation (Ioffe and Szegedy, 2015) of x: [rows, channels], NHWC with rows = batch * height *
// width:
//   y = (x - mean) * inverse_stddev * gamma + beta, with mean and variance over the rows of each channel.
// Training is batch_norm_statistics, then batch_norm_normalise; inference normalises by the running
// statistics. An addition and a ReLU that follow are done in the same pass. All sums have an order that
// depends on the shape alone; the variance is two-pass.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

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

// Bytes of scratch memory for batch_norm_statistics and batch_norm_backward.
size_t batch_norm_workspace_bytes(const BatchNormShape& shape);

// mean[c], inverse_stddev[c] = 1 / sqrt(variance + epsilon) with the biased variance, and both running
// statistics, that of the variance with the unbiased one. Without rows everything is left as it is; throws
// for one row, which has no variance.
void batch_norm_statistics(const BatchNormShape& shape, const BatchNormSettings& settings, const float* x,
                           float* mean, float* inverse_stddev, float* running_mean, float* running_variance,
                           void* workspace, cudaStream_t stream);

// inverse_stddev[c] = 1 / sqrt(variance[c] + epsilon)
void batch_norm_inverse_stddev(const float* variance, float epsilon, int channels, float* inverse_stddev,
                               cudaStream_t stream);

// y = (x - mean) * inverse_stddev * gamma + beta [+ addend], then 0 where that is negative if `relu`. addend:
// [rows, channels] or null. y may not overlap x; a NaN passes.
void batch_norm_normalise(const BatchNormShape& shape, const float* x, const float* mean,
                          const float* inverse_stddev, const float* gamma, const float* beta,
                          const float* addend, bool relu, float* y, cudaStream_t stream);

// Where the mean and the variance came from: `batch` if from x itself, so that gradients flow through them.
enum class BatchNormMode { batch, running };

// Gradients of x, gamma and beta, written whole; x, mean, inverse_stddev and gamma as in the forward pass. y:
// the output where a ReLU followed, else null; with it, daddend (or null) gets the gradient of the addend,
// which is that of the ReLU's input. Without rows dgamma and dbeta are 0.
void batch_norm_backward(const BatchNormShape& shape, BatchNormMode mode, const float* x, const float* y,
                         const float* dy, const float* mean, const float* inverse_stddev, const float* gamma,
                         float* dx, float* daddend, float* dgamma, float* dbeta, void* workspace,
                         cudaStream_t stream);

}  // namespace lockstep::kernels
