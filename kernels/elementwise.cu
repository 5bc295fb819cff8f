// Element kernels: fills, casts, sums and scalings. Each is one expression on element i.
#include "kernels/elementwise.h"

#include "kernels/float_types.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {

template <typename T>
void fill(T* x, float value, int64_t n, cudaStream_t stream) {
  const T rounded = from_float<T>(value);
  launch_elements(stream, n, [=] __device__(int64_t i) { x[i] = rounded; });
}

template <typename From, typename To>
void cast(const From* x, To* y, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) { y[i] = from_float<To>(to_float(x[i])); });
}

template <typename T>
void add_into(T* destination, const T* source, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) {
    destination[i] = from_float<T>(to_float(destination[i]) + to_float(source[i]));
  });
}

template <typename T>
void add(const T* a, const T* b, T* y, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n,
                  [=] __device__(int64_t i) { y[i] = from_float<T>(to_float(a[i]) + to_float(b[i])); });
}

template <typename T>
void scale_by(const float* x, const float* factor, T* y, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) { y[i] = from_float<T>(x[i] * *factor); });
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
