// Learning-rate schedules: the factor on the base rate, as a function of the progress through training; and
// the base rate for a batch of another size.
#pragma once

#include <cstdint>

namespace lockstep::nn {

enum class Schedule {
  constant,  // linear warm-up, then 1
  step,      // linear warm-up, then times gamma every so many steps of the whole run
  cosine,    // linear warm-up, then half a cosine down to 0
};

struct StepDecay {
  int64_t every = 1;  // steps: 30 epochs are 30 times the steps of an epoch
  double gamma = 0.1;
};

// The factor for step `step` of `total` (0-based), with `warmup` steps of warm-up (0: none). Never 0: step 0
// of a warm-up has 1 / warmup, and the cosine would be 0 at step `total`. `decay` is for Schedule::step;
// throws where its `every` is less than 1.
double schedule_factor(Schedule schedule, int64_t step, int64_t total, int64_t warmup, StepDecay decay = {});

// The linear scaling rule (Goyal et al., Accurate, Large Minibatch SGD, 2017): `rate` is right for batches of
// `base` rows; k times the rows take one step where k steps would have been, so it is k times as long. To be
// used with a warm-up. Throws where a batch is less than 1.
double scaled_rate(double rate, int64_t batch, int64_t base);

}  // namespace lockstep::nn
