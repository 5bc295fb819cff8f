// For programs that are ordinary CUDA and test themselves: CHECK says what is wrong and where, CHECK_CUDA a
// call that failed. main ends with `return failures() > 0;`.
#pragma once

#include <cstdio>

inline int& failures() {
  static int count = 0;
  return count;
}

#define CHECK(condition)                                                                          \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      if (++failures() <= 10) std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                                             \
  } while (false)

#define CHECK_CUDA(call)                                                                                \
  do {                                                                                                  \
    const cudaError_t check_status = (call);                                                            \
    if (check_status != cudaSuccess) {                                                                  \
      if (++failures() <= 10)                                                                           \
        std::printf("%s:%d: %s gives %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_status)); \
    }                                                                                                   \
  } while (false)
