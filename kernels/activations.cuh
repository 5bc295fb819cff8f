// What each activation computes, for one element, in float. Where one chooses, it selects between two values
// instead of branching, so that the CPU's loops vectorise.
#pragma once

#include <cmath>

#include "kernels/exp.cuh"

namespace lockstep::kernels {

// What the way back reads, and so what stays in memory until then: the input of the way forward, or its
// output.
enum class ActivationReads { input, output };

namespace activations {

// 1 / (1 + exp(-x)), without overflow for large |x|.
__host__ __device__ inline float logistic(float x) {
  const float e = exp_polynomial(x < 0.0f ? x : -x);  // at most 1
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// max(x, 0); NaN stays NaN.
struct ReLU {
  static constexpr auto kReads = ActivationReads::output;
  __host__ __device__ static float forward(float x) {
    return x <= 0.0f ? 0.0f : x;
  }  // a NaN compares false and passes
  __host__ __device__ static float backward(float y, float dy) { return y > 0.0f ? dy : 0.0f; }
};

struct Sigmoid {
  static constexpr auto kReads = ActivationReads::output;
  __host__ __device__ static float forward(float x) { return logistic(x); }
  __host__ __device__ static float backward(float y, float dy) { return dy * y * (1.0f - y); }
};

// x Phi(x), with the normal distribution's Phi(x) = (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel, 2016).
// PyTorch's default, not the approximation by tanh. Its derivative is Phi(x) + x phi(x), with the density
// phi.
struct GELU {
  static constexpr auto kReads = ActivationReads::input;
  // By erfc where the sum would cancel: x times a small number, not times a difference of two ones.
  __host__ __device__ static float distribution(float x) { return 0.5f * erfcf(x * -0.70710678f); }
  __host__ __device__ static float forward(float x) { return x * distribution(x); }
  __host__ __device__ static float backward(float x, float dy) {
    const float density = 0.39894228f * exp_polynomial(-0.5f * x * x);
    const float slope = distribution(x) + x * density;
    return dy * slope;
  }
};

// x logistic(x), also called swish (Ramachandran, Zoph and Le, 2017). With s = logistic(x) its derivative is
// s (1 + x (1 - s)).
struct SiLU {
  static constexpr auto kReads = ActivationReads::input;
  __host__ __device__ static float forward(float x) { return x * logistic(x); }
  __host__ __device__ static float backward(float x, float dy) {
    const float s = logistic(x);
    return dy * s * (1.0f + x * (1.0f - s));
  }
};

}  // namespace activations
}  // namespace lockstep::kernels
