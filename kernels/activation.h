// Activations, one struct each. To add one: its struct in kernels/activations.cuh, and its row here; then
// nn/layers/activation.h has its operation and its layer (docs/your_own_model.md shows it).
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/activations.cuh"

// ROW(function, struct and layer)
#define LOCKSTEP_ACTIVATIONS(ROW) \
  ROW(relu, ReLU)                 \
  ROW(sigmoid, Sigmoid)           \
  ROW(gelu, GELU)                 \
  ROW(silu, SiLU)

namespace lockstep::kernels {

// y[i] = F::forward(x[i]). Pointers, stream and T as in kernels/elementwise.h.
template <typename F, typename T>
void activation_forward(const T* x, T* y, int64_t n, cudaStream_t stream);

// dx[i] = F::backward(kept[i], dy[i]), where `kept` is what F::kReads says: x or y of the way forward.
template <typename F, typename T>
void activation_backward(const T* kept, const T* dy, T* dx, int64_t n, cudaStream_t stream);

}  // namespace lockstep::kernels
