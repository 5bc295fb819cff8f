// Gradient clipping by global norm, without a look from the host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/scratch.h"

namespace lockstep::kernels {

// As torch.nn.utils.clip_grad_norm_:
//   *norm = gradient_scale * sqrt(sum_i x[i]^2)
//   x[i] *= min(1, max_norm / (*norm + 1e-6))
// x stays unscaled: gradient_scale, 1 / rows where the loss is a sum, only makes the norm that of the mean.
// A norm that is NaN makes every element NaN. The sum's order depends on n alone.
void norm_for_clip(const float* x, int64_t n, float gradient_scale, float* norm, const SumScratch& scratch,
                   cudaStream_t stream);
void scale_by_clip(float* x, int64_t n, float max_norm, const float* norm, cudaStream_t stream);
size_t norm_for_clip_workspace_bytes(int64_t n);

}  // namespace lockstep::kernels
