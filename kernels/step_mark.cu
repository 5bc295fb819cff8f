#include "kernels/step_mark.h"

#include "kernels/launch.cuh"

namespace lockstep::kernels {

void begin_step() {
  detail::mark_step_begin();
}

void end_step(int64_t rows) {
  detail::mark_step_end(rows);
}

bool can_forecast() {
  return !kOnGpu;
}

}  // namespace lockstep::kernels
