#include "nn/clip.h"

#include <fmt/format.h>

#include "kernels/check.h"
#include "kernels/clip.h"

namespace lockstep::nn {

Tensor clip_gradient_norm(const Tensor& arena, float max_norm, float gradient_scale) {
  if (!(max_norm > 0))
    throw Error(fmt::format("clip_gradient_norm: a norm of at most {}: use a positive number", max_norm));
  const Device device = arena.device();
  const DeviceGuard guard(device);
  const Tensor partial = Tensor::empty({kernels::clip_by_norm_partials(arena.size())}, device);
  Tensor norm = Tensor::empty({1}, device);
  kernels::clip_by_norm(arena.data<float>(), arena.size(), max_norm, gradient_scale, partial.data<float>(),
                        norm.data<float>(), device.stream());
  arena.mark_overwritten();
  return norm;
}

}  // namespace lockstep::nn
