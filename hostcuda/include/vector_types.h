// CUDA's small vector types (dim3, uint3, float4, ...) with the alignment that nvcc gives them: that of the
// whole for two and four elements, up to 16 bytes.
#pragma once

#define __VECTOR_TYPES_H__  // NVIDIA's own header of this name, should it be here too, then holds nothing

#define HOSTCUDA_VECTORS(name, T, align2, align4) \
  struct name##1 {                                \
    T x;                                          \
  };                                              \
  struct alignas(align2) name##2 {                \
    T x, y;                                       \
  };                                              \
  struct name##3 {                                \
    T x, y, z;                                    \
  };                                              \
  struct alignas(align4) name##4 {                \
    T x, y, z, w;                                 \
  };

HOSTCUDA_VECTORS(char, signed char, 2, 4)
HOSTCUDA_VECTORS(uchar, unsigned char, 2, 4)
HOSTCUDA_VECTORS(short, short, 4, 8)
HOSTCUDA_VECTORS(ushort, unsigned short, 4, 8)
HOSTCUDA_VECTORS(int, int, 8, 16)
HOSTCUDA_VECTORS(uint, unsigned, 8, 16)
HOSTCUDA_VECTORS(long, long, 16, 16)
HOSTCUDA_VECTORS(ulong, unsigned long, 16, 16)
HOSTCUDA_VECTORS(longlong, long long, 16, 16)
HOSTCUDA_VECTORS(ulonglong, unsigned long long, 16, 16)
HOSTCUDA_VECTORS(float, float, 8, 16)
HOSTCUDA_VECTORS(double, double, 16, 16)

#undef HOSTCUDA_VECTORS

// The extent of a grid or a block; what is left out is 1.
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
