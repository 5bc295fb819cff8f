// What a program tells a forecast (docs/forecast.md) of itself: where its steps begin and end, and what its
// kernels compute. Costs nothing to speak of where nobody asks for one.
#pragma once

#include <cstdint>

namespace hostcuda {

// Around a step of `items` items (images, rows): what repeats, and whose time is forecast.
void begin_step();
void end_step(int64_t items);

// The next kernel that this thread launches does so many floating point operations. Without this they are
// estimated from its accesses.
void note_operations(double operations);

}  // namespace hostcuda
