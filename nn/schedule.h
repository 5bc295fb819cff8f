// Learning-rate schedules: the factor on the base rate, as a function of the progress through training.
#pragma once

#include <cstdint>

namespace lockstep::nn {

enum class Schedule {
  constant,
  cosine,  // linear warm-up over the first epochs, then half a cosine down to 0
};

// The factor for step `step` of `total` (0-based), with `warmup` steps of warm-up. Never 0 before the end:
// step 0 of a warm-up has 1 / warmup.
double schedule_factor(Schedule schedule, int64_t step, int64_t total, int64_t warmup);

}  // namespace lockstep::nn
