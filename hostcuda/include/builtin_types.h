// Where CUDA programs look for it; all of it is in driver_types.h.
#pragma once

#include <driver_types.h>
