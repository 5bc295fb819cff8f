#include "nn/schedule.h"

#include <cmath>
#include <numbers>

namespace lockstep::nn {

double schedule_factor(Schedule schedule, int64_t step, int64_t total, int64_t warmup) {
  if (schedule == Schedule::constant) return 1.0;
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (total <= warmup) return 1.0;
  const double progress = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace lockstep::nn
