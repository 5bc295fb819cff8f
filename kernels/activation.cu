#include "kernels/activation.h"

#include "kernels/map.cuh"

namespace lockstep::kernels {

template <typename F, typename T>
void activation_forward(const T* x, T* y, int64_t n, cudaStream_t stream) {
  launch_map(stream, n, [=] __device__(float& to, float from) { to = F::forward(from); }, Output{y}, x);
}

template <typename F, typename T>
void activation_backward(const T* kept, const T* dy, T* dx, int64_t n, cudaStream_t stream) {
  launch_map(
      stream, n,
      [=] __device__(float& to, float value, float gradient) { to = F::backward(value, gradient); },
      Output{dx}, kept, dy);
}

#define LOCKSTEP_INSTANTIATE_FOR(F, T)                                      \
  template void activation_forward<F>(const T*, T*, int64_t, cudaStream_t); \
  template void activation_backward<F>(const T*, const T*, T*, int64_t, cudaStream_t);
#define LOCKSTEP_INSTANTIATE(function, F)         \
  LOCKSTEP_INSTANTIATE_FOR(activations::F, float) \
  LOCKSTEP_INSTANTIATE_FOR(activations::F, __nv_bfloat16)
LOCKSTEP_ACTIVATIONS(LOCKSTEP_INSTANTIATE)
#undef LOCKSTEP_INSTANTIATE
#undef LOCKSTEP_INSTANTIATE_FOR

}  // namespace lockstep::kernels
