// Half precision on the CPU: the types `half` and `half2`, conversions and arithmetic, by the compiler's own
// 16-bit float. Each operation rounds once, as on a GPU.
#pragma once

#include <bit>
#include <cmath>

#include <cuda_runtime.h>

struct __half_raw {
  unsigned short x;
};

struct alignas(2) __half {
  __half() = default;
  __half(float value) : value_(static_cast<_Float16>(value)) {}
  __half(double value) : value_(static_cast<_Float16>(value)) {}
  __half(int value) : value_(static_cast<_Float16>(value)) {}
  __half(const __half_raw& raw) : value_(std::bit_cast<_Float16>(raw.x)) {}
  operator float() const { return value_; }
  operator __half_raw() const { return {std::bit_cast<unsigned short>(value_)}; }

  __half& operator+=(__half other) { return *this = *this + other; }
  __half& operator-=(__half other) { return *this = *this - other; }
  __half& operator*=(__half other) { return *this = *this * other; }
  __half& operator/=(__half other) { return *this = *this / other; }
  // The float result of one operation on two halves, rounded once more, is the half result: float has more
  // than twice the digits.
  friend __half operator+(__half a, __half b) { return float(a) + float(b); }
  friend __half operator-(__half a, __half b) { return float(a) - float(b); }
  friend __half operator*(__half a, __half b) { return float(a) * float(b); }
  friend __half operator/(__half a, __half b) { return float(a) / float(b); }
  friend __half operator-(__half a) { return -float(a); }
  friend bool operator==(__half a, __half b) { return float(a) == float(b); }
  friend bool operator!=(__half a, __half b) { return float(a) != float(b); }
  friend bool operator<(__half a, __half b) { return float(a) < float(b); }
  friend bool operator>(__half a, __half b) { return float(a) > float(b); }
  friend bool operator<=(__half a, __half b) { return float(a) <= float(b); }
  friend bool operator>=(__half a, __half b) { return float(a) >= float(b); }

 private:
  _Float16 value_;
};

struct alignas(4) __half2 {
  __half x, y;
  friend __half2 operator+(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
  friend __half2 operator-(__half2 a, __half2 b) { return {a.x - b.x, a.y - b.y}; }
  friend __half2 operator*(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
  friend __half2 operator/(__half2 a, __half2 b) { return {a.x / b.x, a.y / b.y}; }
};

using half = __half;
using half2 = __half2;

inline __half __float2half(float a) {
  return a;
}
inline __half __float2half_rn(float a) {
  return a;
}
inline __half __double2half(double a) {
  return a;
}
inline __half __int2half_rn(int a) {
  return a;
}
inline float __half2float(__half a) {
  return a;
}
inline int __half2int_rn(__half a) {
  return static_cast<int>(std::rint(float(a)));
}
inline unsigned short __half_as_ushort(__half a) {
  return static_cast<__half_raw>(a).x;
}
inline __half __ushort_as_half(unsigned short bits) {
  return __half_raw{bits};
}

inline __half __hadd(__half a, __half b) {
  return a + b;
}
inline __half __hsub(__half a, __half b) {
  return a - b;
}
inline __half __hmul(__half a, __half b) {
  return a * b;
}
inline __half __hdiv(__half a, __half b) {
  return a / b;
}
inline __half __hneg(__half a) {
  return -a;
}
inline __half __habs(__half a) {
  return std::fabs(float(a));
}
// The product of two halves is exact in float, the sum with a third in double.
inline __half __hfma(__half a, __half b, __half c) {
  return double(float(a)) * float(b) + float(c);
}
inline __half __hmax(__half a, __half b) {
  return std::fmax(float(a), float(b));
}
inline __half __hmin(__half a, __half b) {
  return std::fmin(float(a), float(b));
}
inline bool __hgt(__half a, __half b) {
  return a > b;
}
inline bool __hlt(__half a, __half b) {
  return a < b;
}
inline bool __heq(__half a, __half b) {
  return a == b;
}
inline bool __hisnan(__half a) {
  return std::isnan(float(a));
}
inline __half hsqrt(__half a) {
  return std::sqrt(float(a));
}
inline __half hexp(__half a) {
  return std::exp(float(a));
}
inline __half hlog(__half a) {
  return std::log(float(a));
}

inline __half2 __halves2half2(__half a, __half b) {
  return {a, b};
}
inline __half2 make_half2(__half a, __half b) {
  return {a, b};
}
inline __half2 __half2half2(__half a) {
  return {a, a};
}
inline __half2 __float2half2_rn(float a) {
  return {a, a};
}
inline __half2 __floats2half2_rn(float a, float b) {
  return {a, b};
}
inline __half2 __float22half2_rn(float2 a) {
  return {a.x, a.y};
}
inline float2 __half22float2(__half2 a) {
  return {a.x, a.y};
}
inline __half __low2half(__half2 a) {
  return a.x;
}
inline __half __high2half(__half2 a) {
  return a.y;
}
inline float __low2float(__half2 a) {
  return a.x;
}
inline float __high2float(__half2 a) {
  return a.y;
}
inline __half2 __hadd2(__half2 a, __half2 b) {
  return a + b;
}
inline __half2 __hsub2(__half2 a, __half2 b) {
  return a - b;
}
inline __half2 __hmul2(__half2 a, __half2 b) {
  return a * b;
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
