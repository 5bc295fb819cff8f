// Element kernels: fills, casts, sums and scalings. Each is one expression on the values of one index.
#include "kernels/elementwise.h"

#include "kernels/map.cuh"

namespace lockstep::kernels {

template <typename T>
void fill(T* x, float value, int64_t n, cudaStream_t stream) {
  launch_map(stream, n, [=] __device__(float& to) { to = value; }, Output{x});
}

template <typename From, typename To>
void cast(const From* x, To* y, int64_t n, cudaStream_t stream) {
  launch_map(stream, n, [=] __device__(float& to, float from) { to = from; }, Output{y}, x);
}

template <typename T>
void add_into(T* destination, const T* source, int64_t n, cudaStream_t stream) {
  launch_map(stream, n, [=] __device__(float& sum, float term) { sum += term; }, destination, source);
}

template <typename T>
void add(const T* a, const T* b, T* y, int64_t n, cudaStream_t stream) {
  launch_map(stream, n, [=] __device__(float& sum, float p, float q) { sum = p + q; }, Output{y}, a, b);
}

template <typename T>
void scale_by(const float* x, const float* factor, T* y, int64_t n, cudaStream_t stream) {
  launch_map(stream, n, [=] __device__(float& to, float from) { to = from * *factor; }, Output{y}, x);
}

template void cast(const float*, __nv_bfloat16*, int64_t, cudaStream_t);
template void cast(const __nv_bfloat16*, float*, int64_t, cudaStream_t);

#define LOCKSTEP_INSTANTIATE(T)                                     \
  template void fill(T*, float, int64_t, cudaStream_t);             \
  template void add_into(T*, const T*, int64_t, cudaStream_t);      \
  template void add(const T*, const T*, T*, int64_t, cudaStream_t); \
  template void scale_by(const float*, const float*, T*, int64_t, cudaStream_t)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels
