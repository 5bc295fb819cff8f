// make_float4 and the like, for host and device code.
#pragma once

#define __VECTOR_FUNCTIONS_H__  // as in vector_types.h

#include <vector_types.h>

#define HOSTCUDA_MAKE_VECTORS(name, T)                   \
  constexpr name##1 make_##name##1(T x) {                \
    return {x};                                          \
  }                                                      \
  constexpr name##2 make_##name##2(T x, T y) {           \
    return {x, y};                                       \
  }                                                      \
  constexpr name##3 make_##name##3(T x, T y, T z) {      \
    return {x, y, z};                                    \
  }                                                      \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) { \
    return {x, y, z, w};                                 \
  }

HOSTCUDA_MAKE_VECTORS(char, signed char)
HOSTCUDA_MAKE_VECTORS(uchar, unsigned char)
HOSTCUDA_MAKE_VECTORS(short, short)
HOSTCUDA_MAKE_VECTORS(ushort, unsigned short)
HOSTCUDA_MAKE_VECTORS(int, int)
HOSTCUDA_MAKE_VECTORS(uint, unsigned)
HOSTCUDA_MAKE_VECTORS(long, long)
HOSTCUDA_MAKE_VECTORS(ulong, unsigned long)
HOSTCUDA_MAKE_VECTORS(longlong, long long)
HOSTCUDA_MAKE_VECTORS(ulonglong, unsigned long long)
HOSTCUDA_MAKE_VECTORS(float, float)
HOSTCUDA_MAKE_VECTORS(double, double)

#undef HOSTCUDA_MAKE_VECTORS
