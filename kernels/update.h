// The parameters that one launch updates, in chunks.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

namespace lockstep::kernels {

// Neighbouring elements of one parameter.
struct UpdateChunk {
  float* weights;
  const float* gradient;
  float *first_state, *second_state;  // what the optimizer remembers; null where it does not
  __nv_bfloat16* rounded;             // gets the new weights, rounded; or null
  int32_t size;
  bool aligned;  // all addresses are multiples of 16
  float decays;  // 1, or 0 where weight decay leaves the parameter alone
};

// Appends the chunks of a parameter of `size` elements, which `whole` describes but for size and aligned.
void append_chunks(const UpdateChunk& whole, int64_t size, std::vector<UpdateChunk>& chunks);

struct UpdateList {
  const UpdateChunk* chunks;  // device memory
  int64_t count;
};

// Gradients are multiplied by min(1, max_norm / (*norm + 1e-6)), or by NaN where the norm is
// (kernels/clip.h); without a norm they stay.
struct GradientClip {
  const float* norm = nullptr;  // device memory
  float max_norm = 0;

  __host__ __device__ float factor() const {
    if (norm == nullptr) return 1.0f;
    const float factor = max_norm / (*norm + 1e-6f);
    return factor >= 1.0f ? 1.0f : factor;
  }
};

}  // namespace lockstep::kernels
