// Gradient clipping by global norm, over the arena that holds all gradients of a replica.
#pragma once

#include "core/tensor.h"

namespace lockstep::nn {

// Scales the gradients so that the norm of all of them together, times `gradient_scale` (1 / rows of the
// whole batch, where the loss was a sum), is at most `max_norm`, with PyTorch's conventions (kernels/clip.h).
// Returns the norm before, one element on the arena's device; nothing waits for it. Replicas whose arenas are
// bitwise equal stay so. Throws where `max_norm` is not positive.
Tensor clip_gradient_norm(const Tensor& arena, float max_norm, float gradient_scale = 1.0f);

// That norm alone, for an optimizer that shortens the gradients on its way (ClipGradients): a pass less.
Tensor gradient_norm(const Tensor& arena, float max_norm, float gradient_scale = 1.0f);

}  // namespace lockstep::nn
