#include "nn/layers/activation.h"

#include "core/autograd.h"

namespace lockstep::nn {

namespace {

// y = F(x). For the way back it keeps what F::backward reads: the input or the output.
template <typename F>
Tensor activate(const char* name, const Tensor& x) {
  const DeviceGuard guard(x.device());
  const Tensor y = Tensor::empty(x.shape(), x.device(), x.dtype());
  for_float_type(name, x.dtype(), [&]<typename T>(T) {
    kernels::activation_forward<F>(x.data<T>(), y.data<T>(), x.size(), x.device().stream());
  });
  constexpr bool kReadsInput = F::kReads == kernels::ActivationReads::input;
  const Tensor kept = kReadsInput ? x.detach() : y;
  return record(name, y, {x},
                [name, kept](const Tensor& dy) {
                  const DeviceGuard here(kept.device());
                  const Tensor dx = Tensor::empty(kept.shape(), kept.device(), kept.dtype());
                  for_float_type(name, kept.dtype(), [&]<typename T>(T) {
                    kernels::activation_backward<F>(kept.data<T>(), dy.data<T>(), dx.data<T>(), kept.size(),
                                                    kept.device().stream());
                  });
                  return std::vector<Tensor>{dx};
                },
                {{kReadsInput ? "input" : "output", kReadsInput ? x : y}});
}

}  // namespace

#define LOCKSTEP_DEFINE(function, Layer)                        \
  Tensor function(const Tensor& x) {                            \
    return activate<kernels::activations::Layer>(#function, x); \
  }                                                             \
  Tensor Layer::forward(const Tensor& x) {                      \
    return function(x);                                         \
  }
LOCKSTEP_ACTIVATIONS(LOCKSTEP_DEFINE)
#undef LOCKSTEP_DEFINE

}  // namespace lockstep::nn
