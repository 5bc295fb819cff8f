// Tells a forecast (docs/forecast.md) what a step is. Nothing on a GPU, where a step can be timed.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

void begin_step();
void end_step(int64_t rows);

// Whether a forecast can be asked for at all: not where kernels run on a GPU.
bool can_forecast();

}  // namespace lockstep::kernels
