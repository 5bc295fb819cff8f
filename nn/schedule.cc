#include "nn/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "kernels/check.h"

namespace lockstep::nn {

double schedule_factor(Schedule schedule, int64_t step, int64_t total, int64_t warmup, StepDecay decay) {
  if (schedule == Schedule::step && decay.every < 1)
    throw Error(fmt::format("schedule_factor: a decay every {} steps: use 1 or more", decay.every));
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (schedule == Schedule::constant) return 1.0;
  if (schedule == Schedule::step) {
    const int64_t decays = step / decay.every;
    return std::pow(decay.gamma, static_cast<double>(decays));
  }
  if (total <= warmup) return 1.0;
  // 1 at the warm-up's last step, 0 at the step that would follow the run: so the last one is short also
  // where there are few.
  const double progress = static_cast<double>(step - warmup + 1) / static_cast<double>(total - warmup + 1);
  return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

double scaled_rate(double rate, int64_t batch, int64_t base) {
  if (batch < 1 || base < 1)
    throw Error(
        fmt::format("scaled_rate: a batch of {} over a base of {}: both must be 1 or more", batch, base));
  return rate * static_cast<double>(batch) / static_cast<double>(base);
}

}  // namespace lockstep::nn
