#include "nn/clip.h"

#include "kernels/clip.h"
#include "nn/operation.h"

namespace lockstep::nn {

Tensor gradient_norm(const Tensor& arena, float max_norm, float gradient_scale) {
  if (!(max_norm > 0))
    throw Error(fmt::format("clip_gradient_norm: a norm of at most {}: use a positive number", max_norm));
  const Device device = arena.device();
  const DeviceGuard guard(device);
  const Tensor scratch = workspace(device, kernels::norm_for_clip_workspace_bytes(arena.size()));
  Tensor norm = Tensor::empty({1}, device);
  kernels::norm_for_clip(arena.data<float>(), arena.size(), gradient_scale, norm.data<float>(),
                         sum_scratch(scratch), device.stream());
  return norm;
}

Tensor clip_gradient_norm(const Tensor& arena, float max_norm, float gradient_scale) {
  Tensor norm = gradient_norm(arena, max_norm, gradient_scale);
  const DeviceGuard guard(arena.device());
  kernels::scale_by_clip(arena.data<float>(), arena.size(), max_norm, norm.data<float>(),
                         arena.device().stream());
  arena.mark_overwritten();
  return norm;
}

}  // namespace lockstep::nn
