// Where CUDA programs look for it; all of it is in cuda_runtime.h.
#pragma once

#include <cuda_runtime.h>
