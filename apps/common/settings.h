// A run's options as types: what they mean, once they have been found valid.
#pragma once

#include "apps/common/options.h"
#include "core/tensor.h"
#include "kernels/augment.h"
#include "kernels/math_context.h"
#include "nn/init.h"
#include "nn/optimizer.h"
#include "nn/schedule.h"
#include "parallel/data_parallel.h"

namespace lockstep::apps {

struct Settings {
  kernels::Math math;
  kernels::Precision precision;
  DType reduce_in;
  collective::Algorithm allreduce;
  parallel::BatchStatistics statistics;
  nn::Init init;
  nn::MakeOptimizer make_optimizer;
  kernels::Augmentation augmentation;

  double learning_rate;  // scaled to the batch
  nn::Schedule schedule;
  int64_t epochs;
  double warmup_epochs;
  int64_t decay_every;  // epochs, for Schedule::step
  double decay_gamma;
};

// Throws Error, naming the option, for values that cannot be.
Settings validate(const Options& options);

// The learning rate of step `step` (0-based, of the whole run).
double rate_at(const Settings& settings, int64_t step, int64_t steps_an_epoch);

// The rates of the whole run, for people: "rate: up to 0.15 in 235 steps, then down to 0 by step 2350".
std::string describe_rate(const Settings& settings, int64_t steps_an_epoch);

}  // namespace lockstep::apps
