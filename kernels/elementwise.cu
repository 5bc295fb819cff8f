// Element kernels: fills, sums, scalings and activations. Each is one expression on element i; where it
// chooses, it selects between two values instead of branching, so that the CPU's loops vectorise.
#include "kernels/elementwise.h"

#include "kernels/exp.cuh"
#include "kernels/launch.cuh"

namespace lockstep::kernels {

void fill(float* x, float value, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) { x[i] = value; });
}

void add_into(float* destination, const float* source, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) { destination[i] += source[i]; });
}

void add(const float* a, const float* b, float* y, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) { y[i] = a[i] + b[i]; });
}

void scale(float* x, float factor, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) { x[i] *= factor; });
}

void scale_by(const float* x, const float* factor, float* y, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) { y[i] = x[i] * *factor; });
}

void relu_forward(const float* x, float* y, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) {
    const float v = x[i];
    y[i] = v <= 0.0f ? 0.0f : v;  // a NaN compares false and passes
  });
}

void relu_backward(const float* y, const float* dy, float* dx, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) {
    const float gradient = dy[i];
    dx[i] = y[i] > 0.0f ? gradient : 0.0f;
  });
}

void sigmoid_forward(const float* x, float* y, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) {
    const float v = x[i];
    const float e = exp_polynomial(v < 0.0f ? v : -v);  // at most 1
    y[i] = (v < 0.0f ? e : 1.0f) / (1.0f + e);
  });
}

void sigmoid_backward(const float* y, const float* dy, float* dx, int64_t n, cudaStream_t stream) {
  launch_elements(stream, n, [=] __device__(int64_t i) {
    const float v = y[i];
    dx[i] = dy[i] * v * (1.0f - v);
  });
}

}  // namespace lockstep::kernels
