// The math functions of device code. Those that C has under the same name (expf, sqrtf, fmaxf, ...) come from
// <math.h>; here are the ones that only CUDA has. The fast intrinsics (__expf, ...) are the exact functions.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <cstring>

// glibc declares some of these names itself, as extern "C" noexcept: the definitions must agree with that.
extern "C" {
inline float __expf(float x) noexcept {
  return expf(x);
}
inline float __exp10f(float x) noexcept {
  return powf(10.0f, x);
}
inline float __logf(float x) noexcept {
  return logf(x);
}
inline float __log2f(float x) noexcept {
  return log2f(x);
}
inline float __log10f(float x) noexcept {
  return log10f(x);
}
inline float __powf(float x, float y) noexcept {
  return powf(x, y);
}
inline float __sinf(float x) noexcept {
  return sinf(x);
}
inline float __cosf(float x) noexcept {
  return cosf(x);
}
inline float __tanf(float x) noexcept {
  return tanf(x);
}
}

inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}
inline double rsqrt(double x) {
  return 1.0 / sqrt(x);
}
inline float __frsqrt_rn(float x) {
  return 1.0f / sqrtf(x);
}
inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return fmaf(x, y, z);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __saturatef(float x) {
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}  // NaN gives 0
inline float fdividef(float x, float y) {
  return x / y;
}

// The smaller and the larger of two values, in C++'s namespace-less form as in device code.
inline int min(int a, int b) {
  return b < a ? b : a;
}
inline unsigned min(unsigned a, unsigned b) {
  return b < a ? b : a;
}
inline long min(long a, long b) {
  return b < a ? b : a;
}
inline unsigned long min(unsigned long a, unsigned long b) {
  return b < a ? b : a;
}
inline long long min(long long a, long long b) {
  return b < a ? b : a;
}
inline unsigned long long min(unsigned long long a, unsigned long long b) {
  return b < a ? b : a;
}
inline float min(float a, float b) {
  return fminf(a, b);
}
inline double min(double a, double b) {
  return fmin(a, b);
}
inline int max(int a, int b) {
  return a < b ? b : a;
}
inline unsigned max(unsigned a, unsigned b) {
  return a < b ? b : a;
}
inline long max(long a, long b) {
  return a < b ? b : a;
}
inline unsigned long max(unsigned long a, unsigned long b) {
  return a < b ? b : a;
}
inline long long max(long long a, long long b) {
  return a < b ? b : a;
}
inline unsigned long long max(unsigned long long a, unsigned long long b) {
  return a < b ? b : a;
}
inline float max(float a, float b) {
  return fmaxf(a, b);
}
inline double max(double a, double b) {
  return fmax(a, b);
}

// Mixed signs go to unsigned, as in CUDA.
inline unsigned min(unsigned a, int b) {
  return min(a, static_cast<unsigned>(b));
}
inline unsigned min(int a, unsigned b) {
  return min(static_cast<unsigned>(a), b);
}
inline unsigned max(unsigned a, int b) {
  return max(a, static_cast<unsigned>(b));
}
inline unsigned max(int a, unsigned b) {
  return max(static_cast<unsigned>(a), b);
}

inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __brev(unsigned x) {
  x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
  x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
  x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
  return __builtin_bswap32(x);
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>((static_cast<int64_t>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}

namespace hostcuda::detail {
// The low 24 bits, sign extended.
constexpr int low24(int x) {
  return static_cast<int>(static_cast<unsigned>(x) << 8) >> 8;
}
}  // namespace hostcuda::detail

// The low 32 bits of the product of the operands' low 24 bits.
inline int __mul24(int a, int b) {
  const int64_t product = static_cast<int64_t>(hostcuda::detail::low24(a)) * hostcuda::detail::low24(b);
  return static_cast<int>(static_cast<unsigned>(product));
}
inline unsigned __umul24(unsigned a, unsigned b) {
  return (a & 0xffffffu) * (b & 0xffffffu);
}

inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}

inline int __float2int_rn(float x) {
  return static_cast<int>(rintf(x));
}
inline int __float2int_rz(float x) {
  return static_cast<int>(x);
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}

inline unsigned umin(unsigned a, unsigned b) {
  return min(a, b);
}
inline unsigned umax(unsigned a, unsigned b) {
  return max(a, b);
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) {
  return (a > b ? a - b : b - a) + c;
}
inline unsigned __sad(int a, int b, unsigned c) {
  return static_cast<unsigned>(a > b ? a - b : b - a) + c;
}

// The bytes of y:x (x's are 0 to 3, y's 4 to 7) that the four digits of the selector name.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
