// Some programs include it beside cuda_runtime.h. hostcuda has no driver API: this tells the version and no
// more.
#pragma once

#include <cuda_runtime_api.h>

#define CUDA_VERSION 13000
