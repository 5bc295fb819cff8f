// Arithmetic that rounds down, up or toward zero. The nearest result and the sign of what is missing to the
// exact one (which an addition's error term or a fused multiply-add gives exactly) tell whether the neighbour
// is wanted. Source of the error term: D. Knuth, The Art of Computer Programming, volume 2, 4.2.2 (two-sum).
#pragma once

#include <cmath>

namespace hostcuda::detail {

enum class Toward { down, up, zero };

// `missing`: the exact value less `nearest`, or something of its sign.
template <Toward kToward, typename T>
T rounded(T nearest, T missing) {
  if (!std::isfinite(nearest) || missing == 0) return nearest;
  const bool down = kToward == Toward::down || (kToward == Toward::zero && nearest > 0);
  if (down) return missing < 0 ? std::nextafter(nearest, static_cast<T>(-HUGE_VAL)) : nearest;
  return missing > 0 ? std::nextafter(nearest, static_cast<T>(HUGE_VAL)) : nearest;
}

template <Toward kToward, typename T>
T add(T a, T b) {
  const T sum = a + b, of_b = sum - a;
  return rounded<kToward>(sum, (a - (sum - of_b)) + (b - of_b));
}
template <Toward kToward, typename T>
T multiply(T a, T b) {
  const T product = a * b;
  return rounded<kToward>(product, std::fma(a, b, -product));
}
template <Toward kToward, typename T>
T divide(T a, T b) {
  const T quotient = a / b, rest = std::fma(-quotient, b, a);
  return rounded<kToward>(quotient, b < 0 ? -rest : rest);
}
template <Toward kToward, typename T>
T square_root(T a) {
  const T root = std::sqrt(a);
  return rounded<kToward>(root, std::fma(-root, root, a));
}

}  // namespace hostcuda::detail

#define HOSTCUDA_ROUNDED(suffix, toward)                                        \
  inline float __fadd_##suffix(float a, float b) {                              \
    return hostcuda::detail::add<hostcuda::detail::Toward::toward>(a, b);       \
  }                                                                             \
  inline double __dadd_##suffix(double a, double b) {                           \
    return hostcuda::detail::add<hostcuda::detail::Toward::toward>(a, b);       \
  }                                                                             \
  inline float __fsub_##suffix(float a, float b) {                              \
    return hostcuda::detail::add<hostcuda::detail::Toward::toward>(a, -b);      \
  }                                                                             \
  inline double __dsub_##suffix(double a, double b) {                           \
    return hostcuda::detail::add<hostcuda::detail::Toward::toward>(a, -b);      \
  }                                                                             \
  inline float __fmul_##suffix(float a, float b) {                              \
    return hostcuda::detail::multiply<hostcuda::detail::Toward::toward>(a, b);  \
  }                                                                             \
  inline double __dmul_##suffix(double a, double b) {                           \
    return hostcuda::detail::multiply<hostcuda::detail::Toward::toward>(a, b);  \
  }                                                                             \
  inline float __fdiv_##suffix(float a, float b) {                              \
    return hostcuda::detail::divide<hostcuda::detail::Toward::toward>(a, b);    \
  }                                                                             \
  inline double __ddiv_##suffix(double a, double b) {                           \
    return hostcuda::detail::divide<hostcuda::detail::Toward::toward>(a, b);    \
  }                                                                             \
  inline float __fsqrt_##suffix(float a) {                                      \
    return hostcuda::detail::square_root<hostcuda::detail::Toward::toward>(a);  \
  }                                                                             \
  inline double __dsqrt_##suffix(double a) {                                    \
    return hostcuda::detail::square_root<hostcuda::detail::Toward::toward>(a);  \
  }                                                                             \
  inline float __frcp_##suffix(float a) {                                       \
    return hostcuda::detail::divide<hostcuda::detail::Toward::toward>(1.0f, a); \
  }                                                                             \
  inline double __drcp_##suffix(double a) {                                     \
    return hostcuda::detail::divide<hostcuda::detail::Toward::toward>(1.0, a);  \
  }

HOSTCUDA_ROUNDED(rd, down)
HOSTCUDA_ROUNDED(ru, up)
HOSTCUDA_ROUNDED(rz, zero)

#undef HOSTCUDA_ROUNDED
