// What a cuDNN handle holds.
#pragma once

#include <cudnn.h>

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
